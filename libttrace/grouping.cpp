// SPDX-License-Identifier: Apache-2.0
// Collects the records of one iteration by key, over all ranks. A key that carries a micro-batch
// carries its logical number from here on.
#include <algorithm>

#include "libttrace/microbatch_inputs.hpp"

namespace ttrace {
namespace {

SharedCoordinates at_turn(Coordinates where, const AxisPosition& part) {
  where[kTurnAxis] = part;
  return where;
}

template <class Wanted>
ShardGroups group_wanted(const Trace& trace, std::int64_t iteration,
                         const MicrobatchNumbers& numbers, const Wanted& wanted) {
  ShardGroups groups;
  for (const auto& [rank, coordinates] : places_of_ranks(trace)) {
    const SharedCoordinates where(coordinates);
    std::map<std::uint64_t, SharedCoordinates> turns;
    const SegmentReader* segment = trace.segment(rank, iteration);
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      if (!wanted(record.key)) continue;
      Key key = record.key;
      Shard shard{rank, where, segment, &record};
      if (key.microbatch >= 0) {
        const auto number = numbers.find({rank, key.microbatch});
        if (number == numbers.end()) continue;
        const auto part = numbers.parts.find({rank, key.microbatch});
        if (part != numbers.parts.end()) {
          const std::uint64_t coord = part->second.coord;
          if (turns.count(coord) == 0) turns[coord] = at_turn(coordinates, part->second);
          shard.where = turns[coord];
        }
        key.microbatch = number->second;
      }
      groups[std::move(key)].push_back(std::move(shard));
    }
  }
  return groups;
}

}  // namespace

ShardGroups group_shards(const Trace& trace, std::int64_t iteration,
                         const MicrobatchNumbers& numbers) {
  return group_wanted(trace, iteration, numbers, [](const Key&) { return true; });
}

ShardGroups group_parameters(const Trace& trace, std::int64_t iteration) {
  return group_wanted(trace, iteration, {},
                      [](const Key& key) { return key.phase == Phase::param; });
}

std::optional<std::int64_t> first_common_iteration(const Trace& reference, const Trace& candidate) {
  const std::vector<std::int64_t> known = reference.iterations();
  for (const std::int64_t iteration : candidate.iterations()) {
    if (std::find(known.begin(), known.end(), iteration) != known.end()) return iteration;
  }
  return std::nullopt;
}

void leave_turns_open(const std::vector<Shard>& shards, Layout& layout) {
  const Coordinates& where = shards.front().where;
  if (where.count(kTurnAxis) == 0 || !layout.axes.empty() || layout.flat) return;
  for (const auto& [name, position] : where) {
    if (name != kTurnAxis) layout.axes.push_back(name);
  }
  if (layout.axes.empty()) layout.axes.push_back("rank");
}

}  // namespace ttrace
