// SPDX-License-Identifier: Apache-2.0
// Lines of a tensor (rows, columns, slices) as numbers: where an error is concentrated, and how
// such places are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr double kNearlyAll = 0.95;  // of a squared error

struct Span {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  double share = 0;  // of the error
};

// The shortest run of lines that holds nearly all of the error, and its neighbours that are alike;
// nullopt when that is more than half of the lines.
[[nodiscard]] std::optional<Span> where_nearly_all(const std::vector<double>& errors);

// The number of equal blocks of `extent` of which this is one; 0 when it is none.
[[nodiscard]] std::uint64_t equal_blocks(const Span& span, std::uint64_t extent);

[[nodiscard]] std::string range_text(std::uint64_t first, std::uint64_t count);  // "12-15", "3"
// "12-15, 20" of the lines that are set.
[[nodiscard]] std::string ranges_text(const std::vector<bool>& lines);

}  // namespace ttrace
