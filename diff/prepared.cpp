// SPDX-License-Identifier: Apache-2.0
// See prepared.hpp.
#include "diff/prepared.hpp"

#include <algorithm>

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
  right.groups = group_shards(candidate, iteration, match.candidate);
  // Rules speak of the candidate; a reference of several ranks is cut, too.
  const bool cut = reference.ranks().size() > 1;
  left.layouts = declared_layouts(left.groups, cut ? rules : std::vector<LayoutRule>{});
  left.tensors = place_all(left.groups, left.layouts);
  LogicalTensors unknown = take_unknown(left);
  Assembled assembled = assemble(left.tensors, match.candidate, rules, right.groups);
  left.tensors.merge(unknown);
  right.layouts = std::move(assembled.decisions);
  right.tensors = std::move(assembled.tensors);

  prepared.flow.emplace(left.groups);
  prepared.alignment = align(left, right, *prepared.flow, assembled.findings, filter);
  const bool data_differs = !match.findings.empty();
  drop_unmatched_microbatches(prepared.alignment.findings, data_differs);
  prepared.findings = std::move(match.findings);
  for (Finding& finding : assembled.findings) {
    if (matches(filter, finding.key)) prepared.findings.push_back(std::move(finding));
  }
}

}  // namespace ttrace
