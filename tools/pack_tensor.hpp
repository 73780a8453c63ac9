// SPDX-License-Identifier: Apache-2.0
// Copies a logical tensor into a pack, whatever its shards are.
#pragma once

#include <cstdint>
#include <functional>

#include "libttrace/logical.hpp"
#include "libttrace/pack.hpp"

namespace ttrace {

// The tensor must be proved; `advance` is called with the bytes of each slab written.
void write_tensor(const LogicalTensor& tensor, std::size_t index, PackWriter& pack,
                  const std::function<void(std::uint64_t)>& advance);

}  // namespace ttrace
