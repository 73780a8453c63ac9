// SPDX-License-Identifier: Apache-2.0
// The loops over elements of the statistics (statistics.hpp): plain arrays of doubles in, sums and
// maxima out. Element i adds to lane i % 8, lanes fold in order, so a result depends on the values
// alone, and compilers can use vectors.
#pragma once

#include <cstddef>
#include <cstdint>

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

[[nodiscard]] NoiseSums sum_run(const NoiseRun& run);

// Sums down the columns; each pointer at the run's first column.
struct ColumnArrays {
  double* x2;
  double* d2;
  double* n2;
  double* d;
  double* n;
  double* nn;  // sum n^2 of the signed noise
};
void add_columns(const NoiseRun& run, const ColumnArrays& columns);

void subtract(double* values, const double* x, std::size_t count);  // values -= x
void add_squares(const double* values, double* squares, std::size_t count);
void divide(double* values, double divisor, std::size_t count);

[[nodiscard]] double dot(const double* left, const double* right, std::size_t count);
[[nodiscard]] double largest(const double* values, std::size_t count);  // of values >= 0
[[nodiscard]] bool any_nonzero(const double* values, std::size_t count);
[[nodiscard]] bool all_finite(const double* values, std::size_t count);

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
// Units of 0 count as nothing; the caller knows whether there can be any.
[[nodiscard]] ElementMaxima element_maxima(const NoiseRun& run, const ElementUnit& unit);
// The first element whose |d| / u is `error`.
[[nodiscard]] std::size_t find_error(const NoiseRun& run, const ElementUnit& unit, double error);

}  // namespace ttrace
