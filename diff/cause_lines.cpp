// SPDX-License-Identifier: Apache-2.0
// See cause_lines.hpp.
#include "diff/cause_lines.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr double kAlike = 8;  // a line beside others that has this many times their error

}  // namespace

std::optional<Span> where_nearly_all(const std::vector<double>& errors) {
  double total = 0;
  for (const double error : errors) total += error;
  if (!(total > 0)) return std::nullopt;
  std::size_t begin = 0, best_begin = 0, best = errors.size();
  double window = 0;
  for (std::size_t end = 0; end < errors.size(); ++end) {
    window += errors[end];
    while (begin < end && window - errors[begin] >= kNearlyAll * total) window -= errors[begin++];
    if (window < kNearlyAll * total || end + 1 - begin >= best) continue;
    best = end + 1 - begin;
    best_begin = begin;
  }
  Span span{best_begin, best, 0};
  const auto inside = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < span.count; ++i) sum += errors[span.first + i];
    return sum;
  };
  for (double held = inside(); span.count < errors.size(); held = inside()) {
    const auto others = static_cast<double>(errors.size() - span.count);
    const double usual = kAlike * std::max(0.0, total - held) / others;
    const std::size_t after = span.first + span.count;
    const bool grow_after = after < errors.size() && errors[after] > usual;
    const bool grow_before = span.first > 0 && errors[span.first - 1] > usual;
    if (!grow_after && !grow_before) break;
    if (grow_before) --span.first;
    ++span.count;
  }
  span.share = std::min(1.0, inside() / total);
  if (2 * span.count > errors.size()) return std::nullopt;
  return span;
}

std::string range_text(std::uint64_t first, std::uint64_t count) {
  return std::to_string(first) + (count > 1 ? "-" + std::to_string(first + count - 1) : "");
}

std::string ranges_text(const std::vector<bool>& lines) {
  constexpr std::size_t kShown = 4;
  std::string text;
  std::size_t shown = 0;
  for (std::size_t first = 0; first < lines.size();) {
    std::size_t end = first;
    while (end < lines.size() && lines[end]) ++end;
    if (end > first && shown++ < kShown) {
      text += (text.empty() ? "" : ", ") + range_text(first, end - first);
    }
    first = end + 1;
  }
  return text + (shown > kShown ? ", ..." : "");
}

std::uint64_t equal_blocks(const Span& span, std::uint64_t extent) {
  const bool aligned = extent % span.count == 0 && span.first % span.count == 0;
  return aligned && span.count > 1 ? extent / span.count : 0;
}

}  // namespace ttrace
