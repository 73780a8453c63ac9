// SPDX-License-Identifier: Apache-2.0
// See prepared.hpp.
#include "diff/prepared.hpp"

#include <algorithm>

#include "libttrace/mutual.hpp"
#include "libttrace/stages.hpp"
#include "libttrace/start.hpp"

namespace ttrace {
namespace {

void drop_unmatched_microbatches(std::vector<Finding>& findings, bool data_differs) {
  if (!data_differs) return;  // the data are the better explanation
  findings.erase(std::remove_if(findings.begin(), findings.end(),
                                [](const Finding& finding) {
                                  return finding.message.rfind("micro-batch ", 0) == 0;
                                }),
                 findings.end());
}

// What has no layout cannot be the truth of content.
LogicalTensors take_unknown(Side& side) {
  LogicalTensors unknown;
  for (const auto& [key, decision] : side.layouts) {
    if (!decision.known) unknown.insert(side.tensors.extract(key));
  }
  return unknown;
}

}  // namespace

void prepare(Prepared& prepared, const Trace& reference, const Trace& candidate,
             std::int64_t iteration, const std::vector<LayoutRule>& rules,
             const std::string& filter) {
  MicrobatchMatch match = match_microbatches(reference, candidate, iteration, iteration);
  prepared.by_content = match.by_content;
  prepared.reference_numbers = match.reference;
  prepared.candidate_numbers = match.candidate;
  Side& left = prepared.reference;
  Side& right = prepared.candidate;
  left.trace = &reference;
  right.trace = &candidate;
  left.iteration = right.iteration = iteration;
  left.groups = group_shards(reference, iteration, match.reference);
  prepared.names = find_numbers(reference, candidate);
  if (prepared.names.empty() && reference.ranks().size() > 1) {
    prepared.reference_names = find_numbers(candidate, reference);
    left.groups = renamed(std::move(left.groups), prepared.reference_names);
  }
  right.groups = renamed(group_shards(candidate, iteration, match.candidate), prepared.names);
  std::set<Key> collectives = take_collectives(left.groups);
  collectives.merge(take_collectives(right.groups));
  leave_out_handovers(left.groups, right.groups);
  leave_out_handovers(right.groups, left.groups);
  count_calls_over_stages(left.groups, right.groups);
  count_calls_over_stages(right.groups, left.groups);
  // Rules speak of the candidate; a reference of several ranks is cut, too.
  const bool cut = reference.ranks().size() > 1 || !match.reference.parts.empty();
  left.layouts = declared_layouts(left.groups, cut ? rules : std::vector<LayoutRule>{});
  if (cut) learn_layouts(left.groups, right.groups, rules, left.layouts);
  left.tensors = place_all(left.groups, left.layouts);
  LogicalTensors unknown = take_unknown(left);
  const StartParameters start(reference, candidate, iteration, prepared.names);
  Assembled assembled = start.assemble(match.candidate, rules, left.tensors, right.groups);
  left.tensors.merge(unknown);
  right.layouts = std::move(assembled.decisions);
  right.tensors = std::move(assembled.tensors);

  prepared.flow.emplace(left.groups);
  prepared.alignment = align(left, right, *prepared.flow, assembled.findings, filter);
  for (const Key& key : collectives) prepared.alignment.skipped += matches(filter, key) ? 1 : 0;
  const bool data_differs = !match.findings.empty();
  drop_unmatched_microbatches(prepared.alignment.findings, data_differs);
  prepared.findings = std::move(match.findings);
  for (Finding& finding : assembled.findings) {
    if (matches(filter, finding.key)) prepared.findings.push_back(std::move(finding));
  }
}

}  // namespace ttrace
