// SPDX-License-Identifier: Apache-2.0
// See stages.hpp.
#include "libttrace/stages.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

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

// ---- ends of the model ----

// The first and the last output of a module of a micro-batch, in the order of execution.
struct Ends {
  const Key* first = nullptr;
  const Key* last = nullptr;
  std::uint64_t first_sequence = 0, last_sequence = 0;
};

std::map<std::int32_t, Ends> ends_of_models(const ShardGroups& reference) {
  std::map<std::int32_t, Ends> ends;
  for (const auto& [key, shards] : reference) {
    const bool output = key.phase == Phase::forward && key.slot.rfind("output", 0) == 0;
    if (!output || key.module == kRootModule) continue;
    const std::uint64_t sequence = shards.front().record->sequence;
    Ends& of = ends[key.microbatch];
    if (of.first == nullptr || sequence < of.first_sequence) {
      of.first = &key;
      of.first_sequence = sequence;
    }
    if (of.last == nullptr || sequence > of.last_sequence) {
      of.last = &key;
      of.last_sequence = sequence;
    }
  }
  return ends;
}

// The ranks that compute what comes next to the model's input or output of that key; empty where
// that does not tell.
std::set<std::int32_t> ranks_at_end(const Key& key, const std::map<std::int32_t, Ends>& ends,
                                    const ShardGroups& candidate) {
  const auto of = ends.find(key.microbatch);
  if (of == ends.end()) return {};
  const bool input = key.slot.find("input") != std::string::npos;
  const auto computed = candidate.find(input ? *of->second.first : *of->second.last);
  std::set<std::int32_t> ranks;
  if (computed == candidate.end()) return ranks;
  for (const Shard& shard : computed->second) ranks.insert(shard.rank);
  return ranks;
}

// ---- calls ----

using Place = std::tuple<std::int32_t, Phase, std::string>;  // micro-batch, phase, module
using CallsOfRanks = std::map<std::int32_t, std::uint32_t>;  // how often each rank calls it
using CallsByPlace = std::map<Place, CallsOfRanks>;

Place place_of(const Key& key) { return {key.microbatch, key.phase, key.module}; }

// Of those keys that are wanted.
template <class Wanted>
CallsByPlace count_calls(const ShardGroups& groups, const Wanted& wanted) {
  CallsByPlace calls;
  for (const auto& [key, shards] : groups) {
    if (!wanted(key)) continue;
    for (const Shard& shard : shards) {
      std::uint32_t& most = calls[place_of(key)][shard.rank];
      most = std::max(most, key.call + 1);
    }
  }
  return calls;
}

// How many calls of other stages come before those of each rank; empty unless stages, in the order
// of their ranks, call it `wanted` times in all.
CallsOfRanks calls_before(const CallsOfRanks& calls, std::uint32_t wanted, const Modules& modules) {
  std::vector<std::pair<std::set<std::string>, std::uint32_t>> stages;
  std::map<std::int32_t, std::size_t> stage_of;
  for (const auto& [rank, count] : calls) {
    const auto own = modules.find(rank);
    if (own == modules.end()) return {};
    auto stage = std::find_if(stages.begin(), stages.end(),
                              [&](const auto& known) { return known.first == own->second; });
    if (stage == stages.end()) stage = stages.insert(stages.end(), {own->second, count});
    if (stage->second != count) return {};
    stage_of[rank] = static_cast<std::size_t>(stage - stages.begin());
  }
  std::vector<std::uint32_t> before;
  std::uint32_t all = 0;
  for (const auto& [parameters, count] : stages) {
    before.push_back(all);
    all += count;
  }
  CallsOfRanks offsets;
  if (stages.size() < 2 || all != wanted) return offsets;
  for (const auto& [rank, stage] : stage_of) offsets[rank] = before[stage];
  return offsets;
}

std::map<Place, CallsOfRanks> find_offsets(const ShardGroups& reference,
                                           const ShardGroups& candidate) {
  std::map<Place, CallsOfRanks> offsets;
  const CallsByPlace wanted =  // of modules that some rank calls more than once
      count_calls(reference, [](const Key& key) { return key.call > 0; });
  if (wanted.empty()) return offsets;
  const Modules modules = parameters_by_rank(candidate);
  const auto repeated = [&](const Key& key) { return wanted.contains(place_of(key)); };
  for (const auto& [place, calls] : count_calls(candidate, repeated)) {
    const CallsOfRanks& theirs = wanted.at(place);
    const auto most = std::max_element(
        theirs.begin(), theirs.end(),
        [](const auto& left, const auto& right) { return left.second < right.second; });
    CallsOfRanks found = calls_before(calls, most->second, modules);
    if (!found.empty()) offsets.emplace(place, std::move(found));
  }
  return offsets;
}

}  // namespace

std::set<Key> take_collectives(ShardGroups& groups) {
  std::set<Key> taken;
  for (auto at = groups.begin(); at != groups.end();) {
    const bool buffer = at->first.phase == Phase::comm;
    if (buffer) taken.insert(at->first);
    at = buffer ? groups.erase(at) : std::next(at);
  }
  return taken;
}

void leave_out_handovers(const ShardGroups& reference, ShardGroups& candidate) {
  const Modules modules = parameters_by_rank(candidate);
  const auto parameters_of = [&modules](std::int32_t rank) {
    const auto found = modules.find(rank);
    return found == modules.end() ? std::set<std::string>{} : found->second;
  };
  const std::map<std::int32_t, Ends> ends = ends_of_models(reference);
  for (auto& [key, shards] : candidate) {
    const auto wanted = reference.find(key);
    if (key.module != kRootModule || wanted == reference.end()) continue;
    const Record& kind = *wanted->second.front().record;
    const std::set<std::int32_t> at_end = ranks_at_end(key, ends, candidate);
    const auto keeps = [&](const Shard& shard) {
      return same_kind(*shard.record, kind) && (at_end.empty() || at_end.count(shard.rank) != 0);
    };
    std::set<std::string> of_keepers;
    for (const Shard& shard : shards) {
      if (keeps(shard)) of_keepers.merge(parameters_of(shard.rank));
    }
    if (of_keepers.empty()) continue;
    std::erase_if(shards, [&](const Shard& shard) {
      return !keeps(shard) && parameters_of(shard.rank) != of_keepers;
    });
  }
}

void count_calls_over_stages(const ShardGroups& reference, ShardGroups& candidate) {
  const std::map<Place, CallsOfRanks> offsets = find_offsets(reference, candidate);
  if (offsets.empty()) return;
  ShardGroups moved;
  for (auto& [key, shards] : candidate) {
    const auto found = offsets.find(place_of(key));
    if (found == offsets.end()) continue;
    for (Shard& shard : shards) {
      Key counted = key;
      counted.call += found->second.at(shard.rank);
      moved[counted].push_back(std::move(shard));
    }
    shards.clear();
  }
  for (auto& [key, shards] : moved) candidate[key] = std::move(shards);
  std::erase_if(candidate, [](const auto& group) { return group.second.empty(); });
}

}  // namespace ttrace
