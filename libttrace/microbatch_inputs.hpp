// SPDX-License-Identifier: Apache-2.0
// The data each rank computed on: the inputs of the root module, by rank and micro-batch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "libttrace/documents.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

// Where each rank stands. Ranks that the recorded mesh does not tell apart (or all, when none was
// recorded) stand on an axis of their own, "rank".
[[nodiscard]] std::map<std::int32_t, Coordinates> places_of_ranks(const Trace& trace);

// A rank and its own micro-batch number.
using Turn = std::pair<std::int32_t, std::int32_t>;

using InputSlots = std::map<std::string, Shard>;  // slot -> record, whatever the call number

struct RunInputs {
  std::map<std::int32_t, Coordinates> places;
  std::map<Turn, InputSlots> turns;  // every micro-batch of every rank, with or without inputs
  [[nodiscard]] bool any() const;
};

enum class InputKind : std::uint8_t { integer, floating };
[[nodiscard]] RunInputs read_inputs(const Trace& trace, std::int64_t iteration, InputKind kind);

// Equal content, equal value.
using Content = std::tuple<Hash128, DType, Shape>;
[[nodiscard]] Content content_of(const Shard& shard);

// How many different contents each slot has; slots that tell the fewest turns apart (a position
// table, a causal mask) identify nothing.
[[nodiscard]] std::map<std::string, std::set<Content>> contents_of(const RunInputs& inputs);

// Pairs of ranks (in both orders) that stand apart along one axis only; pipelines come first.
using RankPair = std::pair<std::int32_t, std::int32_t>;
[[nodiscard]] std::vector<std::pair<std::string, std::vector<RankPair>>> neighbours_of(
    const std::map<std::int32_t, Coordinates>& places);

// Numbers of turns that have none, copied from ranks which stand elsewhere on one axis only: along
// a pipeline all stages work on the same micro-batches. Axes named like pipelines come first.
void follow_neighbours(const RunInputs& inputs, const std::set<Turn>& followers,
                       MicrobatchNumbers& numbers);

// "equal inputs on several ranks are one micro-batch", from the slot that tells most apart.
[[nodiscard]] MicrobatchNumbers number_by_content(const RunInputs& inputs);
// Every rank's own number, where content says nothing.
[[nodiscard]] MicrobatchNumbers number_by_position(const RunInputs& inputs);

// Turns whose input of a slot is a part of a reference micro-batch, under one layout for all ranks.
struct CutMatch {
  Layout layout;
  std::map<Turn, std::vector<std::int32_t>> numbers;  // all reference micro-batches that fit
};
// `whole`: the reference's tensors by logical number, as are its `documents`.
[[nodiscard]] std::optional<CutMatch> match_cut_inputs(const std::map<std::int32_t, Shard>& whole,
                                                       const std::map<Turn, Shard>& parts,
                                                       const DocumentTable& documents);

}  // namespace ttrace
