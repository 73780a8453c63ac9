// SPDX-License-Identifier: Apache-2.0
// See merge_proof.hpp.
#include "tools/merge_proof.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "libttrace/core/trouble.hpp"
#include "libttrace/proof.hpp"
#include "libttrace/stages.hpp"
#include "libttrace/start.hpp"

namespace ttrace {
namespace {

Finding incomplete(std::int64_t iteration, std::string message, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.kind = FindingKind::incomplete_trace;
  finding.key.iteration = iteration;
  finding.message = std::move(message);
  finding.ranks = std::move(ranks);
  return finding;
}

std::vector<Finding> missing_segments(const Trace& trace, std::int64_t iteration) {
  std::vector<Finding> findings;
  for (const RankInfo& rank : trace.ranks()) {
    const std::string name = "rank " + std::to_string(rank.rank);
    const SegmentReader* segment = trace.segment(rank.rank, iteration);
    if (segment == nullptr) {
      findings.push_back(
          incomplete(iteration, name + " has no segment of iteration " + std::to_string(iteration),
                     {rank.rank}));
    } else if (!segment->info().complete) {
      findings.push_back(incomplete(
          iteration, name + " died before iteration " + std::to_string(iteration) + " ended",
          {rank.rank}));
    }
  }
  return findings;
}

// Micro-batches whose tensors group_shards leaves out.
std::vector<Finding> unnumbered(const Trace& trace, std::int64_t iteration,
                                const MicrobatchNumbers& numbers) {
  std::set<std::pair<std::int32_t, std::int32_t>> turns;
  for (const RankInfo& rank : trace.ranks()) {
    const SegmentReader* segment = trace.segment(rank.rank, iteration);
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      if (record.key.microbatch >= 0) turns.emplace(rank.rank, record.key.microbatch);
    }
  }
  std::vector<Finding> findings;
  for (const auto& [rank, own] : turns) {
    if (numbers.count({rank, own}) != 0) continue;
    findings.push_back(incomplete(
        iteration,
        "rank " + std::to_string(rank) + " micro-batch " + std::to_string(own) +
            ": no input tells which one it is, and no rank beside it knows; its tensors are left "
            "out",
        {rank}));
  }
  return findings;
}

LogicalTensors reference_tensors(const ShardGroups& groups) {
  LogicalTensors tensors = place_all(groups, declared_layouts(groups, {}));
  for (auto at = tensors.begin(); at != tensors.end();) {
    at = at->second.proved() ? std::next(at) : tensors.erase(at);  // explains nothing
  }
  return tensors;
}

// Which ranks --ranks asked for; empty: all.
std::set<std::int32_t> wanted_ranks(const Trace& trace) {
  std::set<std::int32_t> wanted;
  const nlohmann::json document = nlohmann::json::parse(trace.json(), nullptr, false);
  const auto ranks = nlohmann::json::json_pointer("/options/ranks");
  if (!document.is_object() || !document.contains(ranks)) return wanted;
  for (const nlohmann::json& rank : document.at(ranks)) {
    if (rank.is_number_integer()) wanted.insert(rank.get<std::int32_t>());
  }
  return wanted;
}

}  // namespace

MergedIteration merge_iteration(const Trace& trace, const Trace* like, std::int64_t iteration,
                                const std::vector<LayoutRule>& rules) {
  MergedIteration merged;
  merged.iteration = iteration;
  merged.problems = missing_segments(trace, iteration);
  if (like == nullptr) {
    const MicrobatchNumbers numbers = number_microbatches(trace, iteration);
    const std::vector<Finding> left_out = unnumbered(trace, iteration, numbers);
    merged.problems.insert(merged.problems.end(), left_out.begin(), left_out.end());
    ShardGroups groups = group_shards(trace, iteration, numbers);
    take_collectives(groups);
    merged.decisions = declared_layouts(groups, rules);
    merged.tensors = place_all(groups, merged.decisions);
  } else {
    const std::vector<std::int64_t> known = like->iterations();
    if (std::find(known.begin(), known.end(), iteration) == known.end()) {
      throw Trouble("merge", like->path().string(),
                    "has no iteration " + std::to_string(iteration) +
                        ", choose one that both have with --iteration");
    }
    MicrobatchMatch match = match_microbatches(*like, trace, iteration, iteration);
    ShardGroups theirs = group_shards(*like, iteration, match.reference);
    take_collectives(theirs);
    LogicalTensors reference = reference_tensors(theirs);
    merged.names = find_numbers(*like, trace);
    ShardGroups groups = renamed(group_shards(trace, iteration, match.candidate), merged.names);
    take_collectives(groups);
    leave_out_handovers(theirs, groups);
    count_calls_over_stages(theirs, groups);
    const StartParameters start(*like, trace, iteration, merged.names);
    Assembled assembled = start.assemble(match.candidate, rules, reference, groups);
    merged.decisions = std::move(assembled.decisions);
    merged.tensors = std::move(assembled.tensors);
    merged.problems.insert(merged.problems.end(), match.findings.begin(), match.findings.end());
    merged.problems.insert(merged.problems.end(), assembled.findings.begin(),
                           assembled.findings.end());
  }
  // Inference may have said already why a layout is not known.
  std::set<std::pair<FindingKind, Key>> told;
  for (const Finding& finding : merged.problems) told.emplace(finding.kind, finding.key);
  for (const auto& [key, tensor] : merged.tensors) {
    for (const Finding& problem : tensor.problems) {
      if (told.count({problem.kind, key}) == 0) merged.problems.push_back(problem);
    }
  }
  return merged;
}

std::vector<Finding> missing_ranks(const Trace& trace) {
  std::vector<Finding> findings;
  std::set<std::int32_t> wanted = wanted_ranks(trace);
  if (wanted.empty()) {
    for (std::int32_t rank = 0; rank < trace.world_size(); ++rank) wanted.insert(rank);
  }
  for (const RankInfo& rank : trace.ranks()) {
    wanted.erase(rank.rank);
    if (!rank.degraded) continue;
    findings.push_back(incomplete(
        0, "rank " + std::to_string(rank.rank) + " lost records: the capture was degraded",
        {rank.rank}));
  }
  if (wanted.empty()) return findings;
  const std::vector<std::int32_t> missing(wanted.begin(), wanted.end());
  findings.push_back(incomplete(0,
                                ranks_text(missing) + " of " + std::to_string(trace.world_size()) +
                                    (missing.size() == 1 ? " is" : " are") + " not in the trace",
                                missing));
  return findings;
}

}  // namespace ttrace
