// SPDX-License-Identifier: Apache-2.0
// See statistics_loops.hpp. Compiled with all optimisations.
#include "diff/statistics_loops.hpp"

#include <cmath>

namespace ttrace {
namespace {

constexpr std::size_t kLanes = 8;

struct Lanes {
  double values[kLanes] = {};

  [[nodiscard]] double sum() const {
    double total = 0;
    for (const double value : values) total += value;
    return total;
  }
  [[nodiscard]] double maximum() const {
    double most = 0;
    for (const double value : values) most = value > most ? value : most;
    return most;
  }
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

inline double inverse_unit(const NoiseRun& run, const ElementUnit& unit, std::size_t i) {
  return 1 / (unit.epsilon * (std::fabs(run.x[i]) + unit.row * unit.columns[i]) + unit.base);
}

}  // namespace

void NoiseSums::add(const NoiseSums& other) {
  x2 += other.x2;
  d2 += other.d2;
  n2 += other.n2;
  dx += other.dx;
  nx += other.nx;
  dx2 += other.dx2;
  nx2 += other.nx2;
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

void subtract(double* __restrict values, const double* __restrict x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] -= x[i];
}

void add_squares(const double* __restrict values, double* __restrict squares, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) squares[i] += values[i] * values[i];
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

bool all_finite(const double* values, std::size_t count) {
  // 0 * value is NaN for what is not finite, and 0 for the rest.
  Lanes sum;
  in_lanes(count, [&](std::size_t i, std::size_t lane) { sum.values[lane] += 0 * values[i]; });
  return sum.sum() == 0;
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

std::size_t find_error(const NoiseRun& run, const ElementUnit& unit, double error) {
  for (std::size_t i = 0; i < run.count; ++i) {
    if (std::fabs(run.d[i]) * inverse_unit(run, unit, i) >= error) return i;
  }
  return run.count;
}

}  // namespace ttrace
