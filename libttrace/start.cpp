// SPDX-License-Identifier: Apache-2.0
// See start.hpp.
#include "libttrace/start.hpp"

#include <algorithm>
#include <optional>

namespace ttrace {
namespace {

std::optional<std::int64_t> first_common_iteration(const Trace& reference, const Trace& candidate) {
  const std::vector<std::int64_t> known = reference.iterations();
  for (const std::int64_t iteration : candidate.iterations()) {
    if (std::find(known.begin(), known.end(), iteration) != known.end()) return iteration;
  }
  return std::nullopt;
}

ShardGroups parameters_of(const Trace& trace, std::int64_t iteration) {
  ShardGroups groups = group_shards(trace, iteration, {});
  std::erase_if(groups, [](const auto& group) { return group.first.phase != Phase::param; });
  return groups;
}

}  // namespace

Inference infer_from_start(const Trace& reference, const Trace& candidate, std::int64_t iteration,
                           const RankNames& names, const std::vector<LayoutRule>& rules,
                           LogicalTensors& tensors, ShardGroups& groups) {
  const std::optional<std::int64_t> start = first_common_iteration(reference, candidate);
  if (!start || *start == iteration) return infer_layouts(tensors, groups, rules);

  const auto of_start = [&start](const auto& entry) { return entry.first.iteration == *start; };
  ShardGroups known = parameters_of(reference, *start);
  for (auto& [key, tensor] : place_all(known, declared_layouts(known, {}))) {
    if (tensor.proved()) tensors.emplace(key, std::move(tensor));
  }
  groups.merge(renamed(parameters_of(candidate, *start), names));
  Inference inference = infer_layouts(tensors, groups, rules);
  std::erase_if(tensors, of_start);
  std::erase_if(groups, of_start);
  std::erase_if(inference.decisions, of_start);
  std::erase_if(inference.findings,
                [&start](const Finding& finding) { return finding.key.iteration == *start; });
  return inference;
}

}  // namespace ttrace
