// SPDX-License-Identifier: Apache-2.0
// See places.hpp.
#include "invariant/builtin/collective/places.hpp"

#include <cctype>
#include <tuple>

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kEnough = 16;  // numbers of which some may be equal by chance

}  // namespace

std::vector<PlacedCall> placed_calls(const CollectiveLog& log, std::int32_t rank,
                                     std::int64_t iteration) {
  std::vector<PlacedCall> placed;
  std::map<std::tuple<std::string, std::string, std::string, std::int32_t>, std::uint32_t> counts;
  for (const Call& call : log.calls(rank, iteration)) {
    const Collective& row = *call.row;
    if ((row.flags & kCollectiveFailed) != 0) continue;
    const std::uint32_t number = counts[{row.module, row.function, row.group, row.microbatch}]++;
    placed.push_back({{rank, row.module, row.function, row.group, number}, call});
  }
  return placed;
}

bool tells(const Record* record) {
  return record != nullptr && record->kind != RecordKind::hash && is_floating(record->dtype) &&
         element_count(record->shape) >= kEnough && record->statistics.nan_count == 0 &&
         record->statistics.min != record->statistics.max;
}

std::string pattern_of(const std::string& module) {
  std::string pattern;
  for (std::size_t i = 0; i < module.size();) {
    const bool starts = i == 0 || module[i - 1] == '.';
    std::size_t end = i;
    while (end < module.size() && std::isdigit(static_cast<unsigned char>(module[end])) != 0) ++end;
    if (starts && end > i && (end == module.size() || module[end] == '.')) {
      pattern += '#';
      i = end;
    } else {
      pattern += module[i++];
    }
  }
  return pattern;
}

std::vector<std::uint64_t> numbers_in(const std::string& module) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t start = 0; start < module.size();) {
    const std::size_t end = std::min(module.find('.', start), module.size());
    const std::string word = module.substr(start, end - start);
    if (word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos &&
        !word.empty()) {
      numbers.push_back(std::stoull(word));
    }
    start = end + 1;
  }
  return numbers;
}

}  // namespace ttrace::builtin
