// SPDX-License-Identifier: Apache-2.0
// What of the ranks' execution order and shared storage survives in a merged trace.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// Micro-batch by micro-batch within each phase; inside, pipeline stage by stage (backwards in the
// backward pass) and in a stage as its first rank recorded.
[[nodiscard]] std::vector<const LogicalTensor*> in_execution_order(const LogicalTensors& tensors);

// Equal for tensors that share their storage on each rank that holds them: one's rows are written,
// the others become aliases, and the data flow between modules stays visible.
struct StorageId {
  std::vector<std::pair<std::int32_t, std::uint64_t>> storages;  // rank, record that owns the bytes
  Shape shape;
  std::vector<std::uint64_t> parts;  // where the tensor lies in shards that hold more than it
  friend auto operator<=>(const StorageId&, const StorageId&) = default;
};
[[nodiscard]] StorageId storage_id(const LogicalTensor& tensor);

}  // namespace ttrace
