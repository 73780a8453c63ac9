// SPDX-License-Identifier: Apache-2.0
// Both runs have the same parameters, bit for bit, before their first step only. There unequal
// sections and the like are found, so the layouts of later iterations follow those parameters.
#pragma once

#include <optional>

#include "libttrace/numbering.hpp"

namespace ttrace {

// The parameters of the first iteration that two runs have in common, beside those of a later one
// while its layouts are inferred.
class StartParameters {
 public:
  StartParameters(const Trace& reference, const Trace& candidate, std::int64_t iteration,
                  const RankNames& names);
  // assemble() with them; `tensors` and `groups` are of the later iteration, and so is the result.
  [[nodiscard]] Assembled assemble(const MicrobatchNumbers& numbers,
                                   const std::vector<LayoutRule>& rules, LogicalTensors& tensors,
                                   ShardGroups& groups) const;

 private:
  std::optional<std::int64_t> start_;  // none when there is nothing to add
  ShardGroups reference_, candidate_;
};

}  // namespace ttrace
