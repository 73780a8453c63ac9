// SPDX-License-Identifier: Apache-2.0
// What names and alias rows say by themselves. See flow.hpp.
#include <algorithm>

#include "diff/flow.hpp"
#include "libttrace/numbering.hpp"

namespace ttrace {

bool is_input(const Key& key) {
  return (key.phase == Phase::forward || key.phase == Phase::recompute) &&
         key.slot.rfind("input", 0) == 0;
}

std::string output_slot(std::string_view slot) {
  constexpr std::string_view kPrefix = "grad_";
  if (slot.substr(0, kPrefix.size()) == kPrefix) slot.remove_prefix(kPrefix.size());
  return std::string(slot);
}

std::string parent_of(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return std::string(dot == std::string_view::npos ? kRootModule : module.substr(0, dot));
}

bool lies_in(std::string_view module, std::string_view ancestor) {
  if (ancestor == kRootModule) return true;
  if (module.substr(0, ancestor.size()) != ancestor) return false;
  return module.size() == ancestor.size() || module[ancestor.size()] == '.';
}

std::string block_of(std::string_view module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view component = module.substr(begin, end - begin);
    const bool number =
        !component.empty() && component.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) return std::string(module.substr(0, end));
    begin = end + 1;
  }
  return "";
}

std::string module_of(const Key& key) {
  const bool parameter =
      key.phase == Phase::param || key.phase == Phase::grad || key.phase == Phase::step;
  return parameter && key.module != kRootModule ? parent_of(key.module) : key.module;
}

std::optional<Key> alias_target(const Key& key, const std::vector<Shard>& shards) {
  std::optional<Key> common;
  for (const Shard& shard : shards) {
    const Record* record = shard.record;
    while (record->alias_of != kNotAlias) {
      record = &shard.segment->records()[static_cast<std::size_t>(record->alias_of)];
    }
    if (record == shard.record) return std::nullopt;
    // Numbers in the segment are the rank's own; both records must be of one micro-batch.
    const std::int32_t number = record->key.microbatch;
    if (number >= 0 && number != shard.record->key.microbatch) return std::nullopt;
    Key target = record->key;
    target.iteration = key.iteration;
    if (number >= 0) target.microbatch = key.microbatch;
    if (shard.names != nullptr) target.module = shard.names->logical(target.module);
    if (common && *common != target) return std::nullopt;
    common = std::move(target);
  }
  return common;
}

}  // namespace ttrace
