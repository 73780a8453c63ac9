// SPDX-License-Identifier: Apache-2.0
// Collects the records of one iteration by key, over all ranks. A key that carries a micro-batch
// carries its logical number from here on.
#include "libttrace/microbatch_inputs.hpp"

namespace ttrace {

ShardGroups group_shards(const Trace& trace, std::int64_t iteration,
                         const MicrobatchNumbers& numbers) {
  ShardGroups groups;
  for (const auto& [rank, coordinates] : places_of_ranks(trace)) {
    const SharedCoordinates where(coordinates);
    const SegmentReader* segment = trace.segment(rank, iteration);
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      Key key = record.key;
      if (key.microbatch >= 0) {
        const auto number = numbers.find({rank, key.microbatch});
        if (number == numbers.end()) continue;
        key.microbatch = number->second;
      }
      groups[std::move(key)].push_back({rank, where, segment, &record});
    }
  }
  return groups;
}

}  // namespace ttrace
