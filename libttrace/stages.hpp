// SPDX-License-Identifier: Apache-2.0
// What pipeline stages hand to each other. To the model on a stage it is an input or an output; to
// the whole model it is neither.
#pragma once

#include "libttrace/logical.hpp"

namespace ttrace {

// Removes shards of the root module that are of another kind (type class or number of dimensions)
// than the reference's tensor of that key, where other ranks have that kind and the rank holds
// other parameters than they do. What was handed on stays recorded as the tensor that some module
// returned.
void leave_out_handovers(const ShardGroups& reference, ShardGroups& candidate);

}  // namespace ttrace
