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
  for (auto& line : row_evidence(matcher, slot)) finding.evidence.push_back(std::move(line));
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

// Both kinds of inputs of one run.
struct Inputs {
  RunInputs integer;
  RunInputs floating;
};

Inputs inputs_of(const Trace& trace, std::int64_t iteration) {
  return {read_inputs(trace, iteration, InputKind::integer),
          read_inputs(trace, iteration, InputKind::floating)};
}

MicrobatchMatch match_inputs(const Inputs& reference, const Inputs& candidate,
                             std::int64_t iteration) {
  if (reference.integer.any() && candidate.integer.any()) {
    MicrobatchMatcher matcher(reference.integer, candidate.integer);
    if (matcher.usable()) {
      matcher.match();
      return finish(matcher, iteration);
    }
  }
  // Floating inputs are evidence only when all of them match: precision may differ between the
  // runs.
  MicrobatchMatcher matcher(reference.floating, candidate.floating);
  if (matcher.usable()) matcher.match();
  if (!matcher.numbers().empty() && matcher.unmatched().empty()) return finish(matcher, iteration);
  return match_by_position(reference.integer, candidate.integer, iteration);
}

// ---- micro-batches of other sizes ----

// How many turns make up one of the other run's, and whether these follow each other.
struct Splitting {
  std::int32_t parts = 1;
  bool neighbours = true;
};

std::int32_t turns_of(const RunInputs& inputs) {
  std::int32_t most = 0;
  for (const auto& [turn, slots] : inputs.turns) most = std::max(most, turn.second + 1);
  return most;
}

// Turn t as the turn `second` of an imagined rank that stands at `first` on the axis of parts.
std::pair<std::int32_t, std::int32_t> split_turn(std::int32_t turn, std::int32_t turns,
                                                 const Splitting& splitting) {
  if (splitting.neighbours) return {turn % splitting.parts, turn / splitting.parts};
  const std::int32_t joined = turns / splitting.parts;
  return {turn / joined, turn % joined};
}

RunInputs imagined(const RunInputs& inputs, const Splitting& splitting) {
  const std::int32_t turns = turns_of(inputs);
  RunInputs result;
  const auto size = static_cast<std::uint64_t>(splitting.parts);
  for (const auto& [rank, where] : inputs.places) {
    for (std::int32_t part = 0; part < splitting.parts; ++part) {
      Coordinates place = where;
      place[kTurnAxis] = {static_cast<std::uint64_t>(part), size};
      result.places[rank * splitting.parts + part] = std::move(place);
    }
  }
  for (const auto& [turn, slots] : inputs.turns) {
    const auto [part, joined] = split_turn(turn.second, turns, splitting);
    InputSlots& own = result.turns[{turn.first * splitting.parts + part, joined}];
    own = slots;
    for (auto& [slot, shard] : own) {
      Coordinates where = shard.where;
      where[kTurnAxis] = {static_cast<std::uint64_t>(part), size};
      shard.where = std::move(where);
    }
  }
  return result;
}

MicrobatchNumbers numbers_of_turns(const RunInputs& inputs, const MicrobatchNumbers& imagined_ones,
                                   const Splitting& splitting) {
  MicrobatchNumbers numbers;
  const std::int32_t turns = turns_of(inputs);
  for (const auto& [turn, slots] : inputs.turns) {
    const auto [part, joined] = split_turn(turn.second, turns, splitting);
    const auto number = imagined_ones.find({turn.first * splitting.parts + part, joined});
    if (number == imagined_ones.end()) continue;
    numbers[turn] = number->second;
    numbers.parts[turn] = {static_cast<std::uint64_t>(part),
                           static_cast<std::uint64_t>(splitting.parts)};
  }
  return numbers;
}

// The match when several turns of `fine` are one of `coarse`, `fine` as the candidate; nullopt when
// that explains not all of the data.
std::optional<MicrobatchMatch> match_split(const Inputs& coarse, const Inputs& fine,
                                           std::int64_t iteration) {
  const std::int32_t turns = turns_of(fine.integer);
  for (std::int32_t parts = 2; parts <= turns; ++parts) {
    if (turns % parts != 0) continue;
    for (const bool neighbours : {true, false}) {
      if (!neighbours && parts == turns) continue;  // the same
      const Splitting splitting{parts, neighbours};
      const Inputs joined{imagined(fine.integer, splitting), imagined(fine.floating, splitting)};
      MicrobatchMatch match = match_inputs(coarse, joined, iteration);
      if (!match.by_content || !match.findings.empty()) continue;
      match.candidate = numbers_of_turns(fine.integer, match.candidate, splitting);
      return match;
    }
  }
  return std::nullopt;
}

MicrobatchMatch swapped(MicrobatchMatch match) {
  std::swap(match.reference, match.candidate);
  return match;
}

}  // namespace

MicrobatchMatch match_microbatches(const Trace& reference, const Trace& candidate,
                                   std::int64_t reference_iteration,
                                   std::int64_t candidate_iteration) {
  const Inputs known = inputs_of(reference, reference_iteration);
  const Inputs held = inputs_of(candidate, candidate_iteration);
  MicrobatchMatch match = match_inputs(known, held, candidate_iteration);
  if (match.findings.empty() || !match.by_content) return match;
  // Ranks of the reference may hold parts of what the candidate's hold whole.
  if (reference.ranks().size() > 1) {
    MicrobatchMatch back = match_inputs(held, known, reference_iteration);
    if (back.by_content && back.findings.empty()) return swapped(std::move(back));
  }
  // The same samples in more and smaller micro-batches, on either side.
  if (auto split = match_split(known, held, candidate_iteration)) return std::move(*split);
  if (auto split = match_split(held, known, reference_iteration)) {
    return swapped(std::move(*split));
  }
  return match;
}

MicrobatchNumbers number_microbatches(const Trace& trace, std::int64_t iteration) {
  const RunInputs integers = read_inputs(trace, iteration, InputKind::integer);
  if (integers.any()) return number_by_content(integers);
  return number_by_content(read_inputs(trace, iteration, InputKind::floating));
}

}  // namespace ttrace
