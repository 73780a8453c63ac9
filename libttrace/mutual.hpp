// SPDX-License-Identifier: Apache-2.0
// Layouts of a reference that is itself cut over ranks. What it does not declare the other run may
// show: tensors that it has whole, or whose cut it declares. Where both have cut a tensor in ways
// that neither declares, the two layouts are looked for together.
#pragma once

#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// Fills in those decisions of `reference` that are unknown or assumed.
void learn_layouts(const ShardGroups& reference, const ShardGroups& candidate,
                   const std::vector<LayoutRule>& rules, LayoutDecisions& decisions);

}  // namespace ttrace
