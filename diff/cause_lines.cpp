// SPDX-License-Identifier: Apache-2.0
// See cause_lines.hpp.
#include "diff/cause_lines.hpp"

#include <algorithm>
#include <numeric>

namespace ttrace {
namespace {

constexpr double kAlike = 8;  // of two lines: so many times the mean error of all the others

// Indices of the lines that hold the error, largest first, and their share.
std::pair<std::vector<std::size_t>, double> heaviest(const std::vector<double>& errors) {
  std::vector<std::size_t> order(errors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&errors](std::size_t one, std::size_t other) {
    return errors[one] > errors[other];
  });
  // Added from the smallest on, so that nothing is lost beside a large one.
  std::vector<double> after(errors.size() + 1, 0.0);
  for (std::size_t i = errors.size(); i-- > 0;) after[i] = after[i + 1] + errors[order[i]];
  const double total = after[0];
  std::size_t count = 0;
  while (count < order.size() && after[count] > (1 - kNearlyAll) * total) ++count;
  while (count < order.size()) {
    const auto others = static_cast<double>(order.size() - count);
    if (!(errors[order[count]] * others > kAlike * after[count + 1])) break;
    ++count;
  }
  order.resize(count);
  return {std::move(order), total > 0 ? 1 - after[count] / total : 0};
}

}  // namespace

std::optional<Lines> where_nearly_all(const std::vector<double>& errors) {
  const auto [heavy, share] = heaviest(errors);
  if (heavy.empty() || 2 * heavy.size() > errors.size()) return std::nullopt;
  const auto [first, last] = std::minmax_element(heavy.begin(), heavy.end());
  Lines lines;
  lines.first = *first;
  lines.count = heavy.size();
  lines.share = share;
  lines.run = *last - *first + 1 == heavy.size();
  if (!lines.run && 8 * heavy.size() > errors.size()) return std::nullopt;
  lines.set.resize(errors.size(), false);
  for (const std::size_t line : heavy) lines.set[line] = true;
  return lines;
}

std::uint64_t equal_blocks(const Lines& lines, std::uint64_t extent) {
  const bool aligned = extent % lines.count == 0 && lines.first % lines.count == 0;
  return lines.run && aligned && lines.count > 1 ? extent / lines.count : 0;
}

std::string ranges_text(const std::vector<bool>& lines) {
  constexpr std::size_t kShown = 4;
  std::string text;
  std::size_t shown = 0;
  for (std::size_t first = 0; first < lines.size();) {
    std::size_t end = first;
    while (end < lines.size() && lines[end]) ++end;
    if (end > first && shown++ < kShown) {
      text += (text.empty() ? "" : ", ") + std::to_string(first);
      if (end - first > 1) text += "-" + std::to_string(end - 1);
    }
    first = end + 1;
  }
  return text + (shown > kShown ? ", ..." : "");
}

}  // namespace ttrace
