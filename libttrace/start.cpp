// SPDX-License-Identifier: Apache-2.0
// See start.hpp.
#include "libttrace/start.hpp"

namespace ttrace {
StartParameters::StartParameters(const Trace& reference, const Trace& candidate,
                                 std::int64_t iteration, const RankNames& names) {
  start_ = first_common_iteration(reference, candidate);
  if (start_ == iteration) start_.reset();
  if (!start_) return;
  reference_ = group_parameters(reference, *start_);
  candidate_ = renamed(group_parameters(candidate, *start_), names);
}

Assembled StartParameters::assemble(const MicrobatchNumbers& numbers,
                                    const std::vector<LayoutRule>& rules, LogicalTensors& tensors,
                                    ShardGroups& groups) const {
  if (!start_) return ttrace::assemble(tensors, numbers, rules, groups);
  for (auto& [key, tensor] : place_all(reference_, declared_layouts(reference_, {}))) {
    if (tensor.proved()) tensors.emplace(key, std::move(tensor));
  }
  groups.insert(candidate_.begin(), candidate_.end());
  Assembled assembled = ttrace::assemble(tensors, numbers, rules, groups);
  const auto of_start = [this](const auto& entry) { return entry.first.iteration == *start_; };
  std::erase_if(tensors, of_start);
  std::erase_if(groups, of_start);
  std::erase_if(assembled.tensors, of_start);
  std::erase_if(assembled.decisions, of_start);
  std::erase_if(assembled.findings,
                [this](const Finding& finding) { return finding.key.iteration == *start_; });
  return assembled;
}

}  // namespace ttrace
