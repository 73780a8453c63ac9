// SPDX-License-Identifier: Apache-2.0
// The loops over elements of the statistics (statistics.hpp): arrays in, sums and maxima out.
// Element i adds to lane i % 8, lanes fold in order, every product is rounded by itself, so a
// result depends on the values alone. The loops are compiled once for each instruction set
// (noise_loops.cpp); all give the same bits as the plain ones here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diff/metrics.hpp"

namespace ttrace {

// `count` neighbours of one row. x: reference; d: error; n: signed noise; squares: n^2 (the mean
// over noise tensors). Elements that do not count are 0 in all four.
struct NoiseRun {
  const double* x = nullptr;
  const double* d = nullptr;
  const double* n = nullptr;
  const double* squares = nullptr;
  std::size_t count = 0;

  [[nodiscard]] NoiseRun part(std::size_t first, std::size_t size) const {
    return {x + first, d + first, n + first, squares + first, size};
  }
};

struct NoiseSums {
  double x2 = 0;   // sum x^2
  double d2 = 0;   // sum d^2
  double n2 = 0;   // sum of squares of the noise
  double dx = 0;   // sum d x
  double nx = 0;   // sum n x
  double dx2 = 0;  // sum (d x)^2
  double nx2 = 0;  // sum (n x)^2

  void add(const NoiseSums& other);
};

// Sums down the columns; each pointer at the run's first column.
struct ColumnArrays {
  double* x2;
  double* d2;
  double* n2;
  double* d;
  double* n;
  double* nn;  // sum n^2 of the signed noise
};

// Values as they are stored: one of the two pointers.
struct Values {
  const float* floats = nullptr;
  const double* doubles = nullptr;

  double operator[](std::size_t i) const {
    return floats != nullptr ? static_cast<double>(floats[i]) : doubles[i];
  }
};

struct ErrorNotes {
  bool finite = true;  // else the arrays say nothing
  bool nonzero = false;
};
struct NoiseNotes {
  bool finite = true;  // else the arrays say nothing
  double largest = 0;  // of `squares`
};

// The unit of an element: eps (|x_i| + r_i c_j / t + 0.1 t) + sigma / sqrt(N), with r_i, c_j and t
// the RMS of its row, of its column and of all. Rounding is relative to the element, but its terms
// have the size of what meets in it: the row and the column.
struct ElementUnit {
  double epsilon = 0;
  double row = 0;                   // r_i / t
  const double* columns = nullptr;  // c_j of the run
  double base = 0;                  // 0.1 eps t + sigma / sqrt(N)
  double even = 0;                  // added to squares
};
struct ElementMaxima {
  double error = 0;  // max |d| / u
  double noise = 0;  // max n^2 / u^2
};

struct NoiseLoops {
  const char* target;  // as in strip.hpp, or "scalar"
  // x = reference, d = candidate * scale - reference.
  ErrorNotes (*subtract)(const Values& reference, const Values& candidate, double scale,
                         std::size_t count, double* x, double* d);
  // n = noise - x; squares = n^2 for the first of several noise tensors, else squares += n^2.
  NoiseNotes (*add_noise)(const Values& noise, const double* x, std::size_t count, bool first,
                          double* n, double* squares);
  // The sums of the run, and what it adds to its columns where there are any.
  NoiseSums (*add_run)(const NoiseRun& run, const ColumnArrays* columns);
  // Adds left[i] * right[i] to lane (first + i) % 8.
  void (*add_products)(const double* left, const double* right, std::size_t count,
                       std::size_t first, double* lanes);
  // Units of 0 count as nothing; the caller knows whether there can be any.
  ElementMaxima (*element_maxima)(const NoiseRun& run, const ElementUnit& unit);
};

// Those that this processor can run, the fastest first, the plain ones last.
[[nodiscard]] std::span<const NoiseLoops* const> noise_loops();
extern const NoiseLoops kScalarNoiseLoops;

[[nodiscard]] double sum_lanes(const double* lanes);
[[nodiscard]] double largest_lane(const double* lanes);

void divide(double* values, double divisor, std::size_t count);
[[nodiscard]] double dot(const double* left, const double* right, std::size_t count);
[[nodiscard]] double largest(const double* values, std::size_t count);  // of values >= 0
[[nodiscard]] bool any_nonzero(const double* values, std::size_t count);

[[nodiscard]] double inverse_unit(const NoiseRun& run, const ElementUnit& unit, std::size_t i);
// The first element whose |d| / u is `error`.
[[nodiscard]] std::size_t find_error(const NoiseRun& run, const ElementUnit& unit, double error);

}  // namespace ttrace
