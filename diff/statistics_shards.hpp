// SPDX-License-Identifier: Apache-2.0
// The parts of a candidate that one rank made, as boxes of the logical tensor: what a bug of one
// rank would be confined to. Where one rank made it all, eight slices of the last dimension stand
// for them, which are heads or groups of features.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct ShardPart {
  std::string where;        // "rank 3", "ranks 0, 1" (added up), "slice 2 of 8", "" for all
  std::uint64_t index = 0;  // the first rank, or the slice
  std::vector<Box> boxes;
};

// Every element is in exactly one. A single part, the whole, where there is nothing to tell apart.
[[nodiscard]] std::vector<ShardPart> shard_parts(const LogicalTensor& candidate);

}  // namespace ttrace
