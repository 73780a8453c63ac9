// SPDX-License-Identifier: Apache-2.0
// Two traces of one iteration, ready to be compared: micro-batches matched, shards placed, tensors
// aligned. Nothing here depends on limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/flow.hpp"
#include "libttrace/numbering.hpp"

namespace ttrace {

// Its parts point into each other: it stays where it was made.
struct Prepared {
  Side reference, candidate;
  std::vector<Finding> findings;  // of data and of layouts
  bool by_content = true;
  RankNames names, reference_names;  // of the ranks of either side that number layers themselves
  MicrobatchNumbers reference_numbers, candidate_numbers;
  std::optional<Flow> flow;
  Alignment alignment;
};

// `rules` override declared layouts; tensors whose keys do not match `filter` are left out.
void prepare(Prepared& prepared, const Trace& reference, const Trace& candidate,
             std::int64_t iteration, const std::vector<LayoutRule>& rules,
             const std::string& filter);

}  // namespace ttrace
