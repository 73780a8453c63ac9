// SPDX-License-Identifier: Apache-2.0
// The parts of the proof that shards make up a logical tensor. Each looks at placed shards and
// appends what fails to the tensor's problems; placement.cpp calls them in this order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

void prove(LogicalTensor& tensor);           // all that follows, of shards that have pieces
void prove_types(LogicalTensor& tensor);     // one dtype, that of most shards
void prove_placed(LogicalTensor& tensor);    // the rest
void prove_sums(LogicalTensor& tensor);      // nothing is left to be added over an axis
void prove_copies(LogicalTensor& tensor);    // copies are bit-equal
void prove_coverage(LogicalTensor& tensor);  // each element exactly once

// Shards of one id hold the same addend of the same elements, so they are copies of each other.
// `elements` is equal for shards with the same elements, whichever addend they hold.
struct PlaceId {
  std::vector<std::uint64_t> elements;
  std::vector<std::uint64_t> addend;  // coordinates along the partial axes
  friend auto operator<=>(const PlaceId&, const PlaceId&) = default;
};
[[nodiscard]] PlaceId place_id(const PlacedShard& shard, const Layout& layout);

[[nodiscard]] std::string ranks_text(std::vector<std::int32_t> ranks);  // "ranks 0-3, 7", "rank 2"
// "[31, 9]": the place of an element of the flattened tensor.
[[nodiscard]] std::string element_text(std::uint64_t flat, const Shape& shape);
[[nodiscard]] std::string boxes_text(const std::vector<Box>& boxes);    // at most four, then "..."

}  // namespace ttrace
