// SPDX-License-Identifier: Apache-2.0
// See summary.hpp.
#include "diff/summary.hpp"

#include <algorithm>
#include <set>

#include "libttrace/inference_classes.hpp"

namespace ttrace {
namespace {

void add_outcome(PhaseReport& phase, const Key& key, const Outcome& outcome, bool floating) {
  if (outcome.compared) ++phase.compared;
  if (outcome.compared && outcome.equal) ++phase.equal;
  if (floating && outcome.compared && outcome.limit > 0) {
    const bool first = phase.largest_limit == 0;
    phase.smallest_limit = first ? outcome.limit : std::min(phase.smallest_limit, outcome.limit);
    phase.largest_limit = std::max(phase.largest_limit, outcome.limit);
  }
  if (!phase.closest || outcome.score > phase.largest_score) {
    phase.largest_score = outcome.score;
    phase.closest = key;
  }
}

std::vector<LayoutLine> layout_lines(const Side& candidate) {
  std::map<std::pair<std::string, std::string>, LayoutLine> lines;
  for (const auto& [key, tensor] : candidate.tensors) {
    const auto decision = candidate.layouts.find(key);
    if (decision == candidate.layouts.end()) continue;
    const std::string name =
        std::string(name_of(key.phase)) + "/" + starred(key.module) + "/" + key.slot;
    const std::string layout =
        decision->second.known ? to_string(decision->second.layout) : "unknown";
    LayoutLine& line = lines[{name, layout}];
    line.name = name;
    line.layout = layout;
    if (line.reason.empty()) line.reason = decision->second.reason;
    line.assumed = line.assumed || decision->second.assumed;
    ++line.tensors;
  }
  std::vector<LayoutLine> all;
  for (auto& [key, line] : lines) all.push_back(std::move(line));
  return all;
}

std::string note_of(const Pair& pair, const PairMetrics& metrics, const Alignment& alignment) {
  if (pair.same_as != kNoPair) return "is " + to_string(alignment.pairs[pair.same_as].key);
  if (metrics.evidence == Evidence::hash) return "equal hashes";
  if (metrics.evidence == Evidence::norms) return "norms only";
  return pair.note;
}

}  // namespace

Report summarise(const SummaryInput& input) {
  const Alignment& alignment = *input.alignment;
  Report report;
  report.reference = input.reference->trace->path().string();
  report.candidate = input.candidate->trace->path().string();
  report.iteration = input.reference->iteration;
  report.iterations = {report.iteration};
  report.mode = input.limits->mode;
  report.weak = input.limits->weak;
  report.not_captured = alignment.not_captured;
  report.edges = alignment.edges;
  report.skipped = alignment.skipped;
  for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
    report.phases[phase].expected = alignment.expected[phase];
  }
  for (std::size_t i = 0; i < alignment.pairs.size(); ++i) {
    const Pair& pair = alignment.pairs[i];
    const Outcome& outcome = (*input.outcomes)[i];
    const PairMetrics& metrics = (*input.measured)[i];
    add_outcome(report.phases[static_cast<std::size_t>(pair.key.phase)], pair.key, outcome,
                is_floating(pair.reference->dtype));
    report.tensors.push_back({pair.key, outcome.compared, outcome.equal, outcome.error,
                              outcome.limit, outcome.score, note_of(pair, metrics, alignment),
                              outcome.statistic, outcome.resolution});
    if (pair.same_as != kNoPair) continue;
    for (std::size_t kind = 0; kind < kStatisticKinds; ++kind) {
      report.largest_scores[kind] = std::max(report.largest_scores[kind], outcome.scores[kind]);
    }
    report.excluded += outcome.excluded;
    report.nan_on_both += std::min(metrics.total.reference_nan, metrics.total.candidate_nan);
  }
  report.layouts = layout_lines(*input.candidate);
  return report;
}

void append_iteration(Report& report, Report later) {
  report.iterations.push_back(later.iteration);
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    PhaseReport& phase = report.phases[i];
    const PhaseReport& more = later.phases[i];
    phase.compared += more.compared;
    phase.expected += more.expected;
    phase.equal += more.equal;
    if (more.largest_limit > 0) {
      phase.smallest_limit = phase.largest_limit > 0
                                 ? std::min(phase.smallest_limit, more.smallest_limit)
                                 : more.smallest_limit;
      phase.largest_limit = std::max(phase.largest_limit, more.largest_limit);
    }
    if (more.closest && (!phase.closest || more.largest_score > phase.largest_score)) {
      phase.largest_score = more.largest_score;
      phase.closest = more.closest;
    }
  }
  const auto append = [](auto& all, auto& more) {
    all.insert(all.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
  };
  append(report.findings, later.findings);
  append(report.not_captured, later.not_captured);
  append(report.tensors, later.tensors);
  report.by_content = report.by_content && later.by_content;
  for (std::size_t kind = 0; kind < kStatisticKinds; ++kind) {
    report.largest_scores[kind] = std::max(report.largest_scores[kind], later.largest_scores[kind]);
  }
  report.edges += later.edges;
  report.skipped += later.skipped;
  report.excluded += later.excluded;
  report.nan_on_both += later.nan_on_both;
}

void add_sources(const Trace& reference, Report& report) {
  std::vector<Key> named;
  for (const OrderedFinding& entry : report.findings) named.push_back(entry.finding.key);
  for (const LaterIteration& later : report.later) {
    if (later.jump) named.push_back(later.jump->key);
  }
  for (const Key& key : named) {
    for (const std::string& module : {key.module, module_of(key)}) {
      for (const RankInfo& rank : reference.ranks()) {
        const auto found = rank.modules.find(module);
        if (found == rank.modules.end()) continue;
        report.sources[module] = {found->second.class_name, found->second.location};
        break;
      }
    }
  }
}

std::string Report::untested() const {
  const PhaseReport& forward = phases[static_cast<std::size_t>(Phase::forward)];
  const bool no_output = forward.expected > 0 && forward.compared == 0;
  // An update shows what its gradient was, so one of the two is enough.
  const auto is_update = [](Phase phase) { return phase == Phase::grad || phase == Phase::step; };
  std::set<std::string> parameters;
  for (const NotCaptured& entry : not_captured) {
    if (is_update(entry.key.phase)) parameters.insert(entry.key.module);
  }
  for (const TensorLine& line : tensors) {
    if (is_update(line.key.phase) && line.compared) parameters.erase(line.key.module);
  }
  if (!no_output && parameters.empty()) {
    return doubt.empty() ? "" : "no difference was found, but not all was seen: " + doubt;
  }
  std::string what = no_output ? "not one module output" : "";
  if (!parameters.empty()) {
    what += (no_output ? ", and neither" : "neither") + std::string(" gradient nor update of ") +
            std::to_string(parameters.size()) + " trainable parameters, first `" +
            *parameters.begin() + "`,";
  }
  return "no difference was found, but " + what +
         " was compared: neither run captured it; capture more iterations where optimizers take "
         "turns (ttrace-capture --iterations 0-1), or narrow what is expected with --filter";
}

Verdict Report::verdict() const {
  if (!findings.empty()) return Verdict::differs;
  return untested().empty() ? Verdict::same : Verdict::trouble;
}

std::uint64_t Report::compared() const {
  std::uint64_t sum = 0;
  for (const PhaseReport& phase : phases) sum += phase.compared;
  return sum;
}

std::uint64_t Report::expected() const {
  std::uint64_t sum = 0;
  for (const PhaseReport& phase : phases) sum += phase.expected;
  return sum;
}

std::uint64_t Report::inherited() const {
  return static_cast<std::uint64_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const OrderedFinding& entry) { return entry.inherited; }));
}

}  // namespace ttrace
