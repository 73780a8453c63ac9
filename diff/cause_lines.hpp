// SPDX-License-Identifier: Apache-2.0
// Lines of a tensor (rows, columns, slices) as numbers: in which of them an error is, and how such
// places are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr double kNearlyAll = 0.95;  // of a squared error

struct Lines {
  std::vector<bool> set;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool run = false;  // one after another, from `first` on
  double share = 0;  // of the error
};

// The fewest lines that hold nearly all of the error, and those that are like them. nullopt when
// they are too many to be a place: more than half of all in one run, or an eighth here and there.
[[nodiscard]] std::optional<Lines> where_nearly_all(const std::vector<double>& errors);

// The number of equal blocks of `extent` of which these lines are one; 0 when they are none.
[[nodiscard]] std::uint64_t equal_blocks(const Lines& lines, std::uint64_t extent);

// "12-15, 20" of the lines that are set.
[[nodiscard]] std::string ranges_text(const std::vector<bool>& lines);

}  // namespace ttrace
