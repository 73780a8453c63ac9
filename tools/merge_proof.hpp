// SPDX-License-Identifier: Apache-2.0
// One iteration of a trace as logical tensors, with everything that speaks against them in one
// list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libttrace/numbering.hpp"

namespace ttrace {

struct MergedIteration {
  std::int64_t iteration = 0;
  RankNames names;  // shards of `tensors` point to them
  LayoutDecisions decisions;
  LogicalTensors tensors;
  std::vector<Finding> problems;  // the tensors' own, and those of data, layouts and missing parts
};

// `like` is the reference that explains layouts and micro-batches, or nullptr: then only what is
// declared merges. Throws Trouble when `like` does not have the iteration.
[[nodiscard]] MergedIteration merge_iteration(const Trace& trace, const Trace* like,
                                              std::int64_t iteration,
                                              const std::vector<LayoutRule>& rules);

// Ranks that should be there and are not, or that lost records. Not of one iteration.
[[nodiscard]] std::vector<Finding> missing_ranks(const Trace& trace);

}  // namespace ttrace
