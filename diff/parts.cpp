// SPDX-License-Identifier: Apache-2.0
// See parts.hpp.
#include "diff/parts.hpp"

#include <algorithm>

namespace ttrace {

std::vector<Source> sources_of(const LogicalTensor& tensor) {
  std::vector<Source> sources;
  for (const PlacedShard& shard : tensor.shards) {
    if (shard.copy || shard.pieces.empty()) continue;
    if (!tensor.layout.partial.empty()) {
      const auto same_place =
          std::find_if(sources.begin(), sources.end(),
                       [&](const Source& known) { return known.pieces() == shard.pieces; });
      if (same_place != sources.end()) {
        same_place->shards.push_back(&shard);
        continue;
      }
    }
    sources.push_back({{&shard}});
  }
  return sources;
}

std::vector<Source> odd_copies_of(const LogicalTensor& tensor) {
  std::vector<Source> odd;
  if (!tensor.layout.partial.empty()) return odd;
  for (const PlacedShard& copy : tensor.shards) {
    if (!copy.copy) continue;
    for (const PlacedShard& original : tensor.shards) {
      if (original.copy || original.pieces != copy.pieces) continue;
      if (original.shard.record->hash != copy.shard.record->hash) odd.push_back({{&copy}});
      break;
    }
  }
  return odd;
}

bool equal_by_hash(const Source& reference, const Source& candidate) {
  if (reference.shards.size() != 1 || candidate.shards.size() != 1) return false;
  const Record& left = *reference.first().shard.record;
  const Record& right = *candidate.first().shard.record;
  // No writer leaves the hash out, but 0 would be what such a record has: it proves nothing.
  return left.hash != Hash128{} && left.hash == right.hash && left.dtype == right.dtype &&
         left.shape == right.shape && reference.pieces() == candidate.pieces();
}

RecordKind kept_of(const LogicalTensor& tensor) {
  RecordKind least = RecordKind::full;
  for (const PlacedShard& shard : tensor.shards) {
    least = std::max(least, shard.shard.record->kind);
  }
  return least;
}

}  // namespace ttrace
