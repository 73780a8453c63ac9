// SPDX-License-Identifier: Apache-2.0
// See start.hpp.
#include "libttrace/start.hpp"

#include <algorithm>

namespace ttrace {
namespace {

ShardGroups parameters_of(const Trace& trace, std::int64_t iteration) {
  ShardGroups groups = group_shards(trace, iteration, {});
  std::erase_if(groups, [](const auto& group) { return group.first.phase != Phase::param; });
  return groups;
}

}  // namespace

StartParameters::StartParameters(const Trace& reference, const Trace& candidate,
                                 std::int64_t iteration, const RankNames& names) {
  const std::vector<std::int64_t> known = reference.iterations();
  for (const std::int64_t own : candidate.iterations()) {
    if (std::find(known.begin(), known.end(), own) == known.end()) continue;
    if (own == iteration) return;
    start_ = own;
    reference_ = parameters_of(reference, own);
    candidate_ = renamed(parameters_of(candidate, own), names);
    return;
  }
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
