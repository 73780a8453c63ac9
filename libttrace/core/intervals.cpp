// SPDX-License-Identifier: Apache-2.0
// See intervals.hpp.
#include "libttrace/core/intervals.hpp"

#include <algorithm>
#include <charconv>

namespace ttrace {
namespace {

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::optional<Intervals> parse_intervals(std::string_view text) {
  Intervals intervals;
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    const std::size_t dash = item.find('-');
    const auto first = parse_number(item.substr(0, dash));
    const std::string_view end = dash == std::string_view::npos ? "" : item.substr(dash + 1);
    const auto last = dash == std::string_view::npos ? first
                      : end.empty()                  ? std::optional(kEndless)
                                                     : parse_number(end);
    if (!first || !last || *last < *first) return std::nullopt;
    intervals.emplace_back(*first, *last);
    if (item.size() == text.size()) return intervals;
    text.remove_prefix(item.size() + 1);
  }
}

bool contains(const Intervals& intervals, std::int64_t number) {
  return std::any_of(intervals.begin(), intervals.end(), [number](const auto& interval) {
    return interval.first <= number && number <= interval.second;
  });
}

}  // namespace ttrace
