// SPDX-License-Identifier: Apache-2.0
// See merge_order.hpp.
#include "tools/merge_order.hpp"

#include <algorithm>
#include <tuple>

namespace ttrace {
namespace {

using Order = std::tuple<Phase, std::int32_t, std::uint64_t, std::uint64_t, std::int32_t>;

Order order_of(const LogicalTensor& tensor) {
  const Shard& first = tensor.shards.front().shard;
  const AxisPosition stage = position_on(first.where, "pp");
  const bool backwards = tensor.key.phase == Phase::backward;
  return {tensor.key.phase, tensor.key.microbatch,
          backwards ? stage.size - 1 - stage.coord : stage.coord, first.record->sequence,
          first.rank};
}

}  // namespace

std::vector<const LogicalTensor*> in_execution_order(const LogicalTensors& tensors) {
  std::vector<std::pair<Order, const LogicalTensor*>> ordered;
  for (const auto& [key, tensor] : tensors) ordered.emplace_back(order_of(tensor), &tensor);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });
  std::vector<const LogicalTensor*> list;
  for (const auto& entry : ordered) list.push_back(entry.second);
  return list;
}

StorageId storage_id(const LogicalTensor& tensor) {
  StorageId id;
  for (const PlacedShard& placed : tensor.shards) {
    const Record& record = *placed.shard.record;
    const bool alias = record.alias_of != kNotAlias;
    id.storages.emplace_back(placed.shard.rank,
                             alias ? static_cast<std::uint64_t>(record.alias_of) : record.sequence);
    std::uint64_t held = 0;
    for (const Piece& piece : placed.pieces) held += volume(piece.global);
    if (held == element_count(record.shape)) continue;
    for (const Piece& piece : placed.pieces) {
      id.parts.insert(id.parts.end(), piece.local_start.begin(), piece.local_start.end());
    }
  }
  std::sort(id.storages.begin(), id.storages.end());
  id.shape = tensor.shape;
  return id;
}

}  // namespace ttrace
