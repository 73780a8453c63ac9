// SPDX-License-Identifier: Apache-2.0
// Which micro-batch of the candidate is which of the reference, and what to tell when the data were
// not the same. Without any input that identifies them, micro-batches match by position.
#include <algorithm>

#include "libttrace/inference_family.hpp"
#include "libttrace/microbatch_match.hpp"

namespace ttrace {
namespace {

Finding different_data(std::int64_t iteration, std::int32_t microbatch, const std::string& slot,
                       std::vector<std::int32_t> ranks, std::string message) {
  Finding finding;
  finding.kind = FindingKind::different_data;
  finding.key.iteration = iteration;
  finding.key.microbatch = microbatch;
  finding.key.module = kRootModule;
  finding.key.slot = slot;
  finding.ranks = std::move(ranks);
  finding.message = std::move(message);
  return finding;
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "rank 1 micro-batch 0, rank 3 micro-batch 0"
std::string turns_text(const std::vector<Turn>& turns) {
  std::string text;
  for (const auto& [rank, own] : turns) {
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " micro-batch " +
            std::to_string(own);
  }
  return text;
}

Finding unmatched_finding(const MicrobatchMatcher& matcher, const std::vector<Turn>& turns,
                          std::int64_t iteration) {
  const Turn& first = turns.front();
  const std::string slot = matcher.identifying_slots(first).front();
  const std::string held = bracketed(matcher.candidate().turns.at(first).at(slot).record->shape);
  const std::set<std::string> shapes = matcher.reference_shapes(slot);
  std::string message = turns_text(turns) + ": " + slot + " is no micro-batch of the reference";
  if (shapes.count(held) == 0) {
    message += ": it is " + held + ", the reference's is " + joined(shapes) +
               ", and what the ranks hold, in their order, makes up none: other samples, another "
               "order, or another micro-batch size";
  }
  std::vector<std::int32_t> ranks;
  for (const Turn& turn : turns) ranks.push_back(turn.first);
  Finding finding = different_data(iteration, matcher.numbers().at(first), slot, std::move(ranks),
                                   std::move(message));
  finding.evidence = {{"candidate shape", held}, {"reference shape", joined(shapes)}};
  return finding;
}

// Along an axis that deals out data, two ranks must not have the same. It deals out when most pairs
// of ranks that stand apart along it have different micro-batches of the reference.
void report_same_data(const MicrobatchMatcher& matcher, std::int64_t iteration,
                      std::vector<Finding>& findings) {
  const std::set<std::int32_t> known = matcher.reference_microbatches();
  const MicrobatchNumbers& numbers = matcher.numbers();
  for (const auto& [axis, pairs] : neighbours_of(matcher.candidate().places)) {
    if (matcher.cut_axes().count(axis) != 0) continue;
    std::size_t different = 0;
    std::set<std::pair<RankPair, std::int32_t>> same;
    for (const RankPair& pair : pairs) {
      if (pair.first > pair.second) continue;
      for (const auto& [turn, number] : numbers) {
        const auto other = numbers.find({pair.second, turn.second});
        if (turn.first != pair.first || other == numbers.end()) continue;
        if (known.count(number) == 0 || known.count(other->second) == 0) continue;
        if (other->second != number) {
          ++different;
        } else {
          same.insert({pair, number});
        }
      }
    }
    if (different <= same.size()) continue;
    for (const auto& [pair, number] : same) {
      findings.push_back(different_data(
          iteration, number, "", {pair.first, pair.second},
          "ranks " + std::to_string(pair.first) + " and " + std::to_string(pair.second) +
              " computed the same micro-batch " + std::to_string(number) + ", other ranks along " +
              axis + " have different ones"));
    }
  }
}

void report_not_computed(const std::set<std::int32_t>& reference, const MicrobatchNumbers& numbers,
                         std::int64_t iteration, std::vector<Finding>& findings) {
  std::set<std::int32_t> computed;
  for (const auto& [turn, number] : numbers) computed.insert(number);
  for (const std::int32_t number : reference) {
    if (computed.count(number) != 0) continue;
    findings.push_back(different_data(iteration, number, "", {},
                                      "no rank of the candidate computed micro-batch " +
                                          std::to_string(number) + " of the reference"));
  }
}

void report_unnumbered(const MicrobatchMatcher& matcher, std::int64_t iteration,
                       std::vector<Finding>& findings) {
  for (const auto& [turn, slots] : matcher.candidate().turns) {
    if (matcher.numbers().count(turn) != 0) continue;
    findings.push_back(different_data(
        iteration, turn.second, "", {turn.first},
        turns_text({turn}) + ": no input tells which one it is, and no rank beside it knows; "
                             "its tensors are left out"));
  }
}

MicrobatchMatch finish(MicrobatchMatcher& matcher, std::int64_t iteration) {
  MicrobatchMatch match;
  const std::vector<std::vector<Turn>> unmatched = matcher.unmatched_kinds();
  matcher.number_the_rest();
  for (const std::vector<Turn>& turns : unmatched) {
    match.findings.push_back(unmatched_finding(matcher, turns, iteration));
  }
  report_unnumbered(matcher, iteration, match.findings);
  report_not_computed(matcher.reference_microbatches(), matcher.numbers(), iteration,
                      match.findings);
  report_same_data(matcher, iteration, match.findings);
  match.reference = matcher.reference_numbers();
  match.candidate = matcher.numbers();
  return match;
}

// An axis of as many ranks as the reference has more micro-batches than each rank of the candidate
// deals them out, in the order of data-parallel samplers; an axis named like that comes first.
std::optional<std::string> dealing_axis(const std::map<std::int32_t, Coordinates>& places,
                                        std::size_t size) {
  std::optional<std::string> found;
  for (const auto& [rank, where] : places) {
    for (const auto& [name, position] : where) {
      const bool data = name.rfind("dp", 0) == 0 || name.rfind("data", 0) == 0;
      if (position.size == size && (data || !found)) found = name;
      if (found && data) return found;
    }
  }
  return found;
}

MicrobatchMatch match_by_position(const RunInputs& reference, const RunInputs& candidate,
                                  std::int64_t iteration) {
  MicrobatchMatch match;
  match.by_content = false;
  match.reference = number_by_position(reference);
  match.candidate = number_by_position(candidate);
  std::set<std::int32_t> theirs;
  std::set<std::int32_t> ours;
  for (const auto& [turn, number] : match.reference) theirs.insert(number);
  for (const auto& [turn, number] : match.candidate) ours.insert(number);
  if (!ours.empty() && theirs.size() > ours.size() && theirs.size() % ours.size() == 0) {
    const std::size_t deals = theirs.size() / ours.size();
    if (const auto axis = dealing_axis(candidate.places, deals)) {
      for (auto& [turn, number] : match.candidate) {
        const std::uint64_t coord = position_on(candidate.places.at(turn.first), *axis).coord;
        number = turn.second * static_cast<std::int32_t>(deals) + static_cast<std::int32_t>(coord);
      }
    }
  }
  report_not_computed(theirs, match.candidate, iteration, match.findings);
  return match;
}

MicrobatchMatch match_one_way(const Trace& reference, const Trace& candidate,
                              std::int64_t reference_iteration, std::int64_t candidate_iteration) {
  RunInputs known = read_inputs(reference, reference_iteration, InputKind::integer);
  RunInputs held = read_inputs(candidate, candidate_iteration, InputKind::integer);
  if (known.any() && held.any()) {
    MicrobatchMatcher matcher(known, held);
    if (matcher.usable()) {
      matcher.match();
      return finish(matcher, candidate_iteration);
    }
  }
  // Floating inputs are evidence only when all of them match: precision may differ between the
  // runs.
  MicrobatchMatcher matcher(read_inputs(reference, reference_iteration, InputKind::floating),
                            read_inputs(candidate, candidate_iteration, InputKind::floating));
  if (matcher.usable()) matcher.match();
  if (!matcher.numbers().empty() && matcher.unmatched().empty()) {
    return finish(matcher, candidate_iteration);
  }
  return match_by_position(known, held, candidate_iteration);
}

}  // namespace

MicrobatchMatch match_microbatches(const Trace& reference, const Trace& candidate,
                                   std::int64_t reference_iteration,
                                   std::int64_t candidate_iteration) {
  MicrobatchMatch match =
      match_one_way(reference, candidate, reference_iteration, candidate_iteration);
  if (match.findings.empty() || reference.ranks().size() < 2) return match;
  // Ranks of the reference may hold parts of what the candidate's hold whole.
  MicrobatchMatch back =
      match_one_way(candidate, reference, candidate_iteration, reference_iteration);
  if (!back.by_content || !back.findings.empty()) return match;
  std::swap(back.reference, back.candidate);
  return back;
}

MicrobatchNumbers number_microbatches(const Trace& trace, std::int64_t iteration) {
  const RunInputs integers = read_inputs(trace, iteration, InputKind::integer);
  if (integers.any()) return number_by_content(integers);
  return number_by_content(read_inputs(trace, iteration, InputKind::floating));
}

}  // namespace ttrace
