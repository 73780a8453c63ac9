// SPDX-License-Identifier: Apache-2.0
// See compare.hpp. The steps, each a value the next one reads: match micro-batches, group, place,
// align, find the gradient seeds, measure, judge, order, summarise.
#include "diff/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diff/judge.hpp"
#include "diff/measure_all.hpp"
#include "diff/summary.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

std::string list(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text.empty() ? "none" : text;
}

std::vector<std::int64_t> common_iterations(const Trace& reference, const Trace& candidate,
                                            std::optional<std::int64_t> wanted) {
  const std::vector<std::int64_t> theirs = reference.iterations();
  const std::vector<std::int64_t> ours = candidate.iterations();
  std::vector<std::int64_t> common;
  std::set_intersection(theirs.begin(), theirs.end(), ours.begin(), ours.end(),
                        std::back_inserter(common));
  if (wanted) {
    const bool both = std::find(common.begin(), common.end(), *wanted) != common.end();
    common.clear();
    if (both) common.push_back(*wanted);
  }
  if (common.empty()) {
    throw Trouble("compare", candidate.path().string(),
                  (wanted ? "iteration " + std::to_string(*wanted) + " is not in both traces"
                          : std::string("no iteration is in both traces")) +
                      "; the reference has " + list(theirs) + ", the candidate has " + list(ours));
  }
  return common;
}

// Everything about one iteration that does not depend on limits.
struct Prepared {
  Side reference, candidate;
  std::vector<Finding> findings;  // of data and of layouts
  bool by_content = true;
  std::optional<Flow> flow;
  Alignment alignment;
};

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

void prepare(Prepared& prepared, const Trace& reference, const Trace& candidate,
             std::int64_t iteration, const CompareOptions& options) {
  MicrobatchMatch match = match_microbatches(reference, candidate, iteration, iteration);
  prepared.by_content = match.by_content;
  Side& left = prepared.reference;
  Side& right = prepared.candidate;
  left.trace = &reference;
  right.trace = &candidate;
  left.iteration = right.iteration = iteration;
  left.groups = group_shards(reference, iteration, match.reference);
  right.groups = group_shards(candidate, iteration, match.candidate);
  // Rules speak of the candidate; a reference of several ranks is cut, too.
  const bool cut = reference.ranks().size() > 1;
  left.layouts = declared_layouts(left.groups, cut ? options.rules : std::vector<LayoutRule>{});
  left.tensors = place_all(left.groups, left.layouts);
  LogicalTensors unknown = take_unknown(left);
  Inference inference = infer_layouts(left.tensors, right.groups, options.rules);
  left.tensors.merge(unknown);
  right.layouts = std::move(inference.decisions);
  right.tensors = place_all(right.groups, right.layouts);

  prepared.flow.emplace(left.groups);
  prepared.alignment = align(left, right, *prepared.flow, inference.findings, options.filter);
  const bool data_differs = !match.findings.empty();
  drop_unmatched_microbatches(prepared.alignment.findings, data_differs);
  prepared.findings = std::move(match.findings);
  for (Finding& finding : inference.findings) {
    if (matches(options.filter, finding.key)) prepared.findings.push_back(std::move(finding));
  }
}

LaterIteration look_at(const Trace& reference, const Trace& candidate, const Backend& backend,
                       std::int64_t iteration, const CompareOptions& options) {
  LaterIteration later;
  later.iteration = iteration;
  Prepared prepared;
  prepare(prepared, reference, candidate, iteration, options);
  const Limits limits = options.limits(prepared.alignment, *prepared.flow);
  const Seeds seeds = find_seeds(prepared.alignment, reference, candidate, limits, backend);
  const auto measured = measure_all(prepared.alignment, seeds, backend, {});
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Sums& sums = measured[i].total.sums;
    if (!(sums.reference_squares > 0)) continue;
    const double error = std::sqrt(sums.error_squares / sums.reference_squares);
    const Key& key = prepared.alignment.pairs[i].key;
    LaterIteration::Largest& largest = later.largest[key.phase];
    if (largest.key.empty() || error > largest.error) largest = {error, to_string(key)};
  }
  return later;
}

// Rounding grows through the optimizer, and limits that count the roundings of one iteration know
// nothing of it.
void refuse_drift(const Alignment& alignment, const std::vector<PairMetrics>& measured,
                  const Limits& limits, const Trace& candidate) {
  if (limits.mode != "bound") return;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Key& key = alignment.pairs[i].key;
    const Metrics& total = measured[i].total;
    if (key.iteration == 0 || key.phase != Phase::param || total.unequal == 0) continue;
    const double error = std::sqrt(total.sums.error_squares / total.sums.reference_squares);
    throw Trouble(
        "compare", candidate.path().string(),
        "iteration " + std::to_string(key.iteration) + " begins with other parameters (" +
            key.module + ": relative error " + short_number(error) +
            "), be it by rounding in earlier steps or by a bug in them; compare iteration "
            "0, or an iteration that both runs begin from the same checkpoint, or give "
            "--rel LIMIT");
  }
}

}  // namespace

Report compare(const Trace& reference, const Trace& candidate, const Backend& backend,
               const CompareOptions& options) {
  const auto iterations = common_iterations(reference, candidate, options.iteration);
  const std::int64_t iteration = iterations.front();
  Prepared prepared;
  prepare(prepared, reference, candidate, iteration, options);
  const Alignment& alignment = prepared.alignment;
  if (alignment.pairs.empty()) {
    throw Trouble("compare", candidate.path().string(),
                  "it has no tensor in common with the reference" +
                      (options.filter.empty() ? "; are these runs of the same model?"
                                              : " that matches \"" + options.filter + "\""));
  }
  const Limits limits = options.limits(alignment, *prepared.flow);
  const Seeds seeds = find_seeds(alignment, reference, candidate, limits, backend);
  const std::vector<PairMetrics> measured =
      measure_all(alignment, seeds, backend, options.progress);
  refuse_drift(alignment, measured, limits, candidate);
  const std::vector<Outcome> outcomes = judge(
      {&prepared.reference, &prepared.candidate, &alignment, &limits, &seeds, &measured, &backend});

  std::vector<Finding> findings = trace_findings(reference, "reference", iteration);
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(trace_findings(candidate, "candidate", iteration));
  append(prepared.findings);
  append(alignment.findings);
  append(seed_findings(seeds, limits, iteration));
  for (const Outcome& outcome : outcomes) append(outcome.findings);

  Report report = summarise(
      {&prepared.reference, &prepared.candidate, &alignment, &limits, &measured, &outcomes});
  report.by_content = prepared.by_content;
  report.backend = backend.name();
  report.seeds = seeds;
  if (options.filter.empty()) {
    report.doubt = unrecorded_update(reference, "reference");
    if (report.doubt.empty()) report.doubt = unrecorded_update(candidate, "candidate");
  }
  report.findings = order_findings(std::move(findings), *prepared.flow, alignment, outcomes);
  add_sources(reference, report);
  for (std::size_t i = 1; i < iterations.size(); ++i) {
    report.later.push_back(look_at(reference, candidate, backend, iterations[i], options));
  }
  return report;
}

}  // namespace ttrace
