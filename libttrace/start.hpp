// SPDX-License-Identifier: Apache-2.0
// Both runs have the same parameters, bit for bit, before their first step only. There unequal
// sections and the like are found, so the layouts of later iterations follow those parameters.
#pragma once

#include <vector>

#include "libttrace/numbering.hpp"

namespace ttrace {

// infer_layouts() of an iteration of these two runs, with the parameters of the first iteration
// that they have in common. `tensors` and `groups` are of `iteration`, and are as before on return.
[[nodiscard]] Inference infer_from_start(const Trace& reference, const Trace& candidate,
                                         std::int64_t iteration, const RankNames& names,
                                         const std::vector<LayoutRule>& rules,
                                         LogicalTensors& tensors, ShardGroups& groups);

}  // namespace ttrace
