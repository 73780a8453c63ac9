// SPDX-License-Identifier: Apache-2.0
// See beside.hpp.
#include "libttrace/beside.hpp"

#include "libttrace/core/trouble.hpp"

namespace ttrace {

Layout layout_beside(const Shard& shard) {
  const auto row = static_cast<std::size_t>(shard.record->layout);
  try {
    return layout_from_json(shard.segment->layouts().at(row));
  } catch (const Trouble& trouble) {
    throw Trouble("layout", to_string(shard.record->key) + " of rank " + std::to_string(shard.rank),
                  trouble.what());
  }
}

}  // namespace ttrace
