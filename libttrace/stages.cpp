// SPDX-License-Identifier: Apache-2.0
// See stages.hpp.
#include "libttrace/stages.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace ttrace {
namespace {

using Modules = std::map<std::int32_t, std::set<std::string>>;  // parameters, by rank

bool same_kind(const Record& one, const Record& other) {
  return is_floating(one.dtype) == is_floating(other.dtype) &&
         one.shape.size() == other.shape.size();
}

Modules parameters_by_rank(const ShardGroups& groups) {
  Modules modules;
  for (const auto& [key, shards] : groups) {
    if (key.phase != Phase::param) continue;
    for (const Shard& shard : shards) modules[shard.rank].insert(key.module);
  }
  return modules;
}

}  // namespace

void leave_out_handovers(const ShardGroups& reference, ShardGroups& candidate) {
  const Modules modules = parameters_by_rank(candidate);
  const auto parameters_of = [&modules](std::int32_t rank) {
    const auto found = modules.find(rank);
    return found == modules.end() ? std::set<std::string>{} : found->second;
  };
  for (auto& [key, shards] : candidate) {
    const auto wanted = reference.find(key);
    if (key.module != kRootModule || wanted == reference.end()) continue;
    const Record& kind = *wanted->second.front().record;
    std::set<std::string> of_keepers;
    for (const Shard& shard : shards) {
      if (same_kind(*shard.record, kind)) of_keepers.merge(parameters_of(shard.rank));
    }
    if (of_keepers.empty()) continue;
    shards.erase(std::remove_if(shards.begin(), shards.end(),
                                [&](const Shard& shard) {
                                  return !same_kind(*shard.record, kind) &&
                                         parameters_of(shard.rank) != of_keepers;
                                }),
                 shards.end());
  }
}

}  // namespace ttrace
