// SPDX-License-Identifier: Apache-2.0
// Lists of whole numbers as a user writes them: "0", "0-2,5", "10-" (and all after it).
// Used for the iterations and ranks to be captured.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

inline constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;  // both ends included

// nullopt unless every item is N, N- or N-M with 0 <= N <= M.
[[nodiscard]] std::optional<Intervals> parse_intervals(std::string_view text);
[[nodiscard]] bool contains(const Intervals& intervals, std::int64_t number);

}  // namespace ttrace
