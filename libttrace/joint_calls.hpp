// SPDX-License-Identifier: Apache-2.0
// Ranks of a group that work on several micro-batches may send the rows of all of them to one call:
// an expert gets the tokens of every data parallel rank. The reference has them one micro-batch at
// a time, so what such a call holds is taken apart into what it has of each:
//   one column   the rows of the micro-batches, in the order of the ranks that work on them
//   by column    the same for each column that a rank takes, one column after the other; the ranks
//                take equal runs of the columns of the routing before it
// Only where no layout gives the shards' shapes, for whole classes, and only if the sizes of all
// calls are exactly those that follow from the reference's. Content is compared afterwards.
#pragma once

#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct JointCalls {
  ShardGroups groups;         // by the reference's keys
  LayoutDecisions decisions;  // one for each of them
  LogicalTensors tensors;     // placed, as parts of the shards
  std::vector<Finding> findings;
};

// Takes the tensors that it explains out of `candidate`, and those that have other shapes because
// their rows were routed elsewhere than in the reference: these have no layout, and there is one
// finding for all of them. `numbers` are the candidate's.
[[nodiscard]] JointCalls take_joint_calls(const LogicalTensors& reference,
                                          const MicrobatchNumbers& numbers,
                                          const std::vector<LayoutRule>& rules,
                                          ShardGroups& candidate);

}  // namespace ttrace
