// SPDX-License-Identifier: Apache-2.0
// See slices.hpp.
#include "invariant/builtin/collective/slices.hpp"

#include <charconv>

namespace ttrace::builtin {
namespace {

// nullopt: no list of counts.
std::optional<std::vector<std::uint64_t>> counts_in(const std::string& text) {
  std::vector<std::uint64_t> counts;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at != end) {
    std::uint64_t count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc{} || (next != end && *next != ',')) return std::nullopt;
    counts.push_back(count);
    at = next == end ? end : next + 1;
  }
  return counts;
}

}  // namespace

std::optional<std::vector<Part>> slices_of(const Part& buffer, const std::string& splits,
                                           std::size_t members) {
  std::vector<std::uint64_t> counts;
  if (splits.empty()) {
    if (members == 0 || buffer.count % members != 0) return std::nullopt;
    counts.assign(members, buffer.count / members);
  } else if (const auto listed = counts_in(splits); listed && listed->size() == members) {
    counts = *listed;
  } else {
    return std::nullopt;
  }
  std::vector<Part> slices;
  std::uint64_t start = 0;
  for (const std::uint64_t count : counts) {
    if (count > buffer.count - start) return std::nullopt;
    slices.push_back({buffer.segment, buffer.record, buffer.start + start, count});
    start += count;
  }
  return start == buffer.count ? std::optional(slices) : std::nullopt;
}

}  // namespace ttrace::builtin
