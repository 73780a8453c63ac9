// SPDX-License-Identifier: Apache-2.0
// See compare.hpp. The steps, each a value the next one reads: match micro-batches, group, place,
// align, find the gradient seeds, measure, judge, order, summarise.
#include "diff/compare.hpp"

#include <algorithm>
#include <limits>

#include "diff/cause.hpp"
#include "diff/drift.hpp"
#include "diff/judge.hpp"
#include "diff/later.hpp"
#include "diff/maker.hpp"
#include "diff/masters.hpp"
#include "diff/measure_all.hpp"
#include "diff/pooling.hpp"
#include "diff/prepared.hpp"
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

// What of other runs judges this iteration; nothing when limits are all there is.
struct NoiseTensors {
  std::vector<LogicalTensors> runs;
  std::optional<LogicalTensors> truth;
  Noise noise;
};

// Few samples know their norm; what the worst row or element may be takes more of them.
bool judged_by_noise(const CompareOptions& options) {
  return options.high != nullptr || options.noise.size() >= options.statistic_limits.ensemble;
}

const Noise* gather_noise(const CompareOptions& options, const Prepared& prepared,
                          NoiseTensors& tensors) {
  if (!judged_by_noise(options)) return nullptr;
  const std::int64_t iteration = prepared.reference.iteration;
  const auto read = [&](const Trace& trace) {
    return tensors_like(trace, iteration, prepared.reference_numbers);
  };
  tensors.noise.limits = options.statistic_limits;
  if (options.high != nullptr) {
    tensors.noise.method = Method::local;
    tensors.truth = read(*options.high);
    tensors.noise.truth = &*tensors.truth;
    tensors.noise.samples = {&prepared.reference.tensors};
    return &tensors.noise;
  }
  tensors.noise.method = Method::envelope;
  for (const Trace* trace : options.noise) tensors.runs.push_back(read(*trace));
  for (const LogicalTensors& run : tensors.runs) tensors.noise.samples.push_back(&run);
  return &tensors.noise;
}

Report compare_iteration(const Trace& reference, const Trace& candidate, const Backend& backend,
                         std::int64_t iteration, const CompareOptions& options) {
  Prepared prepared;
  prepare_sampling(prepared, reference, candidate, iteration, options);
  const Alignment& alignment = prepared.alignment;
  if (alignment.pairs.empty()) {
    throw Trouble("compare", candidate.path().string(),
                  "it has no tensor in common with the reference" +
                      (options.filter.empty() ? "; are these runs of the same model?"
                                              : " that matches \"" + options.filter + "\""));
  }
  Limits limits = options.limits(alignment, *prepared.flow);
  const Seeds seeds = find_seeds(alignment, reference, candidate, limits, backend);
  const std::vector<PairMetrics> measured = measure_all(
      alignment, seeds, backend, {options.trust_hash, !judged_by_noise(options), options.progress});
  const double drift = allow_drift(alignment, measured, candidate, limits);
  NoiseTensors noise;
  const JudgeInput judged{&prepared.reference,
                          &prepared.candidate,
                          &alignment,
                          &limits,
                          &seeds,
                          &measured,
                          &backend,
                          &*prepared.flow,
                          gather_noise(options, prepared, noise)};
  const std::vector<Outcome> outcomes = judge(judged);

  std::vector<Finding> findings = trace_findings(reference, "reference", iteration);
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(trace_findings(candidate, "candidate", iteration));
  append(prepared.findings);
  append(alignment.findings);
  append(seed_findings(seeds, limits, iteration));
  for (const Outcome& outcome : outcomes) append(outcome.findings);
  append(pooled_findings(alignment, outcomes, options.statistic_limits));
  append(unrounded_masters(prepared.reference, options.filter, "in the reference: "));
  append(unrounded_masters(prepared.candidate, options.filter, ""));

  Report report = summarise(
      {&prepared.reference, &prepared.candidate, &alignment, &limits, &measured, &outcomes});
  report.by_content = prepared.by_content;
  report.drift = drift;
  report.backend = backend.name();
  report.seeds = seeds;
  report.findings = order_findings(std::move(findings), *prepared.flow, alignment, outcomes);
  if (limits.local) {
    for (OrderedFinding& entry : report.findings) entry.inherited = false;
  }
  add_makers(*prepared.flow, alignment, outcomes, report.findings);
  add_causes(judged, outcomes, report.findings);
  return report;
}

}  // namespace

void prepare_sampling(Prepared& prepared, const Trace& reference, const Trace& candidate,
                      std::int64_t iteration, const CompareOptions& options) {
  for (const Trace* trace : {&reference, &candidate}) trace->expect(Access::samples);
  prepare(prepared, reference, candidate, iteration, options.rules, options.filter);
  for (const Trace* trace : {&reference, &candidate}) trace->expect(Access::in_order);
}

Report compare(const Trace& reference, const Trace& candidate, const Backend& backend,
               const CompareOptions& options) {
  const auto iterations = common_iterations(reference, candidate, options.iteration);
  Report report = compare_iteration(reference, candidate, backend, iterations.front(), options);
  for (std::size_t i = 1; i < iterations.size(); ++i) {
    if (options.every_iteration) {
      append_iteration(report,
                       compare_iteration(reference, candidate, backend, iterations[i], options));
    } else {
      report.later.push_back(look_at(reference, candidate, backend, iterations[i], options));
    }
  }
  if (options.filter.empty()) {
    report.doubt = unrecorded_update(reference, "reference");
    if (report.doubt.empty()) report.doubt = unrecorded_update(candidate, "candidate");
  }
  add_sources(reference, report);
  return report;
}

}  // namespace ttrace
