// SPDX-License-Identifier: Apache-2.0
// What sizes leave open about calls for several micro-batches: along which axis a dimension beside
// the rows is cut, and whether ranks hold addends. Content tells, of a few tensors of each class.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/joint_parts.hpp"

namespace ttrace {

// Dimensions in which shards are unlike the reference's tensors.
struct JointDims {
  std::size_t rows = 0;
  std::optional<std::size_t> cut;  // its extent is the same share of the reference's everywhere
  std::uint64_t shares = 1;
};
// nullopt when there are none, or more than these.
[[nodiscard]] std::optional<JointDims> joint_dims(
    const std::vector<std::pair<const Shard*, const LogicalTensor*>>& shards);

// The share of sampled elements of these parts of one class in which `layout` agrees with the
// reference, a constant factor in gradients aside. Where hardly any do without, but with addends:
// the axes are then partial in it.
[[nodiscard]] double find_addends(const JointSizes& sizes, const JointParts& parts,
                                  const MeshAxes& axes, Layout& layout);

}  // namespace ttrace
