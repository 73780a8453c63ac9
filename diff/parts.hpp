// SPDX-License-Identifier: Apache-2.0
// The sources of a tensor's elements. Usually a source is a shard; where values must still be added
// over a mesh axis, it is the shards that hold the same place, and its elements are their sums.
#pragma once

#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct Source {
  std::vector<const PlacedShard*> shards;  // at least one; all with the same pieces

  [[nodiscard]] const PlacedShard& first() const { return *shards.front(); }
  [[nodiscard]] const SharedPieces& pieces() const { return shards.front()->pieces; }
};

// Every element of the tensor is in exactly one source, if its placement is proved. Copies and
// empty shards are left out.
[[nodiscard]] std::vector<Source> sources_of(const LogicalTensor& tensor);

// Copies that are not bit-equal to the shard they copy.
[[nodiscard]] std::vector<Source> odd_copies_of(const LogicalTensor& tensor);

// Both are one shard with the same pieces, shape, type and hash.
[[nodiscard]] bool equal_by_hash(const Source& reference, const Source& candidate);

// The least that was kept of any shard.
[[nodiscard]] RecordKind kept_of(const LogicalTensor& tensor);

}  // namespace ttrace
