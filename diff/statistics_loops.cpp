// SPDX-License-Identifier: Apache-2.0
// See statistics_loops.hpp. What the loops of each instruction set must agree with, and what is not
// worth one of its own. Compiled with all optimisations.
#include "diff/statistics_loops.hpp"

#include <cmath>

namespace ttrace {
namespace {

struct Lanes {
  double values[kLanes] = {};
  [[nodiscard]] double sum() const { return sum_lanes(values); }
  [[nodiscard]] double maximum() const { return largest_lane(values); }
};

// use(i, lane) for all i < count.
template <class Use>
inline void in_lanes(std::size_t count, Use use) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) use(i + lane, lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) use(i, lane);
}

ErrorNotes subtract(const Values& reference, const Values& candidate, double scale,
                    std::size_t count, double* x, double* d) {
  ErrorNotes notes;
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = reference[i];
    d[i] = candidate[i] * scale - x[i];
    if (!std::isfinite(d[i])) notes.finite = false;
    if (d[i] != 0) notes.nonzero = true;
  }
  return notes;
}

NoiseNotes add_noise(const Values& noise, const double* x, std::size_t count, bool first, double* n,
                     double* squares) {
  NoiseNotes notes;
  for (std::size_t i = 0; i < count; ++i) {
    n[i] = noise[i] - x[i];
    if (!std::isfinite(n[i])) notes.finite = false;
    squares[i] = first ? n[i] * n[i] : squares[i] + n[i] * n[i];
    notes.largest = squares[i] > notes.largest ? squares[i] : notes.largest;
  }
  return notes;
}

NoiseSums sum_run(const NoiseRun& run) {
  Lanes x2, d2, n2, dx, nx, dx2, nx2;
  in_lanes(run.count, [&](std::size_t i, std::size_t lane) {
    const double x = run.x[i], d = run.d[i];
    const double error = d * x, noise = run.n[i] * x;
    x2.values[lane] += x * x;
    d2.values[lane] += d * d;
    n2.values[lane] += run.squares[i];
    dx.values[lane] += error;
    nx.values[lane] += noise;
    dx2.values[lane] += error * error;
    nx2.values[lane] += noise * noise;
  });
  return {x2.sum(), d2.sum(), n2.sum(), dx.sum(), nx.sum(), dx2.sum(), nx2.sum()};
}

void add_columns(const NoiseRun& run, const ColumnArrays& columns) {
  double* __restrict x2 = columns.x2;
  double* __restrict d2 = columns.d2;
  double* __restrict n2 = columns.n2;
  double* __restrict errors = columns.d;
  double* __restrict noises = columns.n;
  double* __restrict nn = columns.nn;
  for (std::size_t i = 0; i < run.count; ++i) {
    const double x = run.x[i], d = run.d[i], n = run.n[i];
    x2[i] += x * x;
    d2[i] += d * d;
    n2[i] += run.squares[i];
    errors[i] += d;
    noises[i] += n;
    nn[i] += n * n;
  }
}

NoiseSums add_run(const NoiseRun& run, const ColumnArrays* columns) {
  if (columns != nullptr) add_columns(run, *columns);
  return sum_run(run);
}

void add_products(const double* left, const double* right, std::size_t count, std::size_t first,
                  double* lanes) {
  for (std::size_t i = 0; i < count; ++i) lanes[(first + i) % kLanes] += left[i] * right[i];
}

ElementMaxima element_maxima(const NoiseRun& run, const ElementUnit& unit) {
  Lanes error, noise;
  in_lanes(run.count, [&](std::size_t i, std::size_t lane) {
    const double inverse = inverse_unit(run, unit, i);
    const double scaled = std::fabs(run.d[i]) * inverse;
    const double square = (run.squares[i] + unit.even) * inverse * inverse;
    error.values[lane] = scaled > error.values[lane] ? scaled : error.values[lane];
    noise.values[lane] = square > noise.values[lane] ? square : noise.values[lane];
  });
  return {error.maximum(), noise.maximum()};
}

}  // namespace

const NoiseLoops kScalarNoiseLoops{"scalar", subtract,     add_noise,
                                   add_run,  add_products, element_maxima};

void NoiseSums::add(const NoiseSums& other) {
  x2 += other.x2;
  d2 += other.d2;
  n2 += other.n2;
  dx += other.dx;
  nx += other.nx;
  dx2 += other.dx2;
  nx2 += other.nx2;
}

double sum_lanes(const double* lanes) {
  double total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  return total;
}

double largest_lane(const double* lanes) {
  double most = 0;
  for (int lane = 0; lane < kLanes; ++lane) most = lanes[lane] > most ? lanes[lane] : most;
  return most;
}

void divide(double* values, double divisor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] /= divisor;
}

double dot(const double* left, const double* right, std::size_t count) {
  Lanes sum;
  in_lanes(count, [&](std::size_t i, std::size_t lane) { sum.values[lane] += left[i] * right[i]; });
  return sum.sum();
}

double largest(const double* values, std::size_t count) {
  Lanes most;
  in_lanes(count, [&](std::size_t i, std::size_t lane) {
    most.values[lane] = values[i] > most.values[lane] ? values[i] : most.values[lane];
  });
  return most.maximum();
}

bool any_nonzero(const double* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != 0) return true;
  }
  return false;
}

double inverse_unit(const NoiseRun& run, const ElementUnit& unit, std::size_t i) {
  return 1 / (unit.epsilon * (std::fabs(run.x[i]) + unit.row * unit.columns[i]) + unit.base);
}

std::size_t find_error(const NoiseRun& run, const ElementUnit& unit, double error) {
  for (std::size_t i = 0; i < run.count; ++i) {
    if (std::fabs(run.d[i]) * inverse_unit(run, unit, i) >= error) return i;
  }
  return run.count;
}

}  // namespace ttrace
