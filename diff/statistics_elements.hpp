// SPDX-License-Identifier: Apache-2.0
// Second pass over the tensors of a StatisticsInput, for what needs the sums of the first: the
// worst element in the unit of its row and column, and rows that must be exactly zero.
#pragma once

#include <cstdint>

#include "diff/statistics_sums.hpp"

namespace ttrace {

struct Level {
  double norm = 0;   // |x|
  double rms = 0;    // t, of x
  double sigma = 0;  // of all elements
  double even = 0;   // what each element's n^2 lacks so that their sum is sigma^2
  double base = 0;   // the part of an element's unit that all share
};

struct WorstElement {
  double error = 0;          // max |d_i| / u_i
  double noise = 0;          // max sqrt(n2_i) / u_i
  std::uint64_t index = 0;   // of the largest error, flat
  double zero_row_norm = 0;  // the largest error of a row where reference and noise are all zero
  std::uint64_t zero_row = 0;
};

[[nodiscard]] WorstElement find_worst_element(const StatisticsInput& input, const TensorSums& sums,
                                              const Level& level);

}  // namespace ttrace
