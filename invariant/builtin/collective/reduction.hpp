// SPDX-License-Identifier: Apache-2.0
// What a reduction should have put out, and how far off it may be. Each addend of a sum of n passes
// through at most n - 1 additions, whatever their order, and each of these rounds by a factor
// within 1 +- u (u half the distance from 1 to the next larger number of the type). So
//   |output - sum| <= ((1 + u)^(n - 1) - 1) * sum of |x_i|
// for every order and every wider type in between (Higham, Accuracy and Stability, 4.2). A mean and
// a sum with a factor round the factor and each product besides: n + 1 in place of n - 1. Products
// of numbers grow errors likewise, relative to the product; minima, maxima and integers are exact.
// An element for which a sum in between may leave the type's range is not decided.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {

struct Reduced {
  std::uint64_t elements = 0;
  std::uint64_t wrong = 0;
  std::uint64_t undecided = 0;
  std::uint64_t first = 0;  // of the wrong ones
  double expected = 0;      // there
  double found = 0;
  double worst = 0;   // largest error, in units of its limit; infinite where there is no number
  double factor = 1;  // that makes the output of what it should be, in the sense of least squares
  // Which of the inputs, left out of it or counted once more, explains the output (sums only).
  std::optional<std::size_t> left_out, twice;
};

// "sum", "avg", "premul_sum" (with `factor`), "prod", "min", "max", "band", "bor", "bxor"; nullopt
// for others, and for types that these do not have.
[[nodiscard]] std::optional<Reduced> compare_reduction(const std::vector<Part>& inputs,
                                                       const Part& output,
                                                       const std::string& reduction, double factor);

// Largest finite and smallest positive values of a floating type; where the hardware may flush
// subnormal numbers to zero, the smallest normal one.
[[nodiscard]] double largest_of(DType type);
[[nodiscard]] double smallest_of(DType type);

struct Equality {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;
  std::uint64_t first = 0;
};
// Bit for bit; of equal counts and types.
[[nodiscard]] Equality compare_bits(const Part& left, const Part& right);

}  // namespace ttrace::builtin
