// SPDX-License-Identifier: Apache-2.0
// Data parallel ranks get different samples, tensor parallel ranks the same ones. The inputs of the
// model tell, by their hashes; constants, masks and position numbers tell nothing.
#include <algorithm>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/copies.hpp"
#include "invariant/builtin/values.hpp"
#include "libttrace/microbatch_inputs.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kLooked = 1
                                  << 16;  // elements: rows that count look like that from the start

// 0, 1, 2, ... in each row: positions, or an index of samples in order.
bool counts_up(const Shard& shard) {
  const Record& record = *shard.record;
  auto part = whole(*shard.segment, &record);
  if (!part || is_floating(record.dtype)) return false;
  const std::uint64_t length = row_length(record.shape);
  if (length < 2) return false;
  part->count = std::min(part->count, kLooked);
  bool counting = true;
  double before = 0;
  for_each_tile({*part}, [&](const Tile& tile, std::uint64_t first) {
    for (std::size_t i = 0; i < tile[0].size() && counting; ++i) {
      if ((first + i) % length != 0) counting = tile[0][i] == before + 1;
      before = tile[0][i];
    }
  });
  return counting;
}

bool tells(const Shard& shard) {
  const Record& record = *shard.record;
  const bool constant =
      record.kind != RecordKind::hash && record.statistics.min == record.statistics.max;
  return element_count(record.shape) > 1 && record.dtype != DType::boolean && !constant &&
         !counts_up(shard);
}

using Sample = std::vector<std::pair<std::string, Content>>;  // what the model was given, by slot

struct GivenInputs {
  std::map<Turn, InputSlots> turns;  // those that tell
  [[nodiscard]] Sample sample(const Turn& turn) const {
    Sample sample;
    for (const auto& [slot, shard] : turns.at(turn)) sample.emplace_back(slot, content_of(shard));
    return sample;
  }
};

GivenInputs read_given(const Evidence& evidence, std::int64_t iteration) {
  GivenInputs given;
  for (const InputKind kind : {InputKind::integer, InputKind::floating}) {
    const RunInputs inputs = read_inputs(evidence.trace(), iteration, kind);
    for (const auto& [turn, slots] : inputs.turns) {
      for (const auto& [slot, shard] : slots) {
        if (tells(shard)) given.turns[turn].emplace(slot, shard);
      }
    }
  }
  return given;
}

std::string turns_text(const std::vector<Turn>& turns) {
  std::string text;
  for (std::size_t i = 0; i < turns.size() && i < 4; ++i) {
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(turns[i].first) + " micro-batch " +
            std::to_string(turns[i].second);
  }
  return turns.size() > 4 ? text + " and " + std::to_string(turns.size() - 4) + " more" : text;
}

// Whether two ranks compute the same thing: equal outputs of nearly all modules. Ranks that are
// given the same samples may take a part each.
bool computes_the_same(const Evidence& evidence, std::int64_t iteration, const Turn& one,
                       const Turn& other) {
  std::map<std::pair<std::string, std::string>, Hash128> outputs;
  std::size_t common = 0;
  std::size_t equal = 0;
  for (const Turn& turn : {one, other}) {
    const SegmentReader* segment = evidence.trace().segment(turn.first, iteration);
    if (segment == nullptr) return false;
    for (const Record& record : segment->records()) {
      const Key& key = record.key;
      const bool output = key.phase == Phase::forward && key.call == 0 &&
                          key.slot.rfind("output", 0) == 0 && is_floating(record.dtype);
      if (!output || key.microbatch != turn.second) continue;
      if (turn == one) {
        outputs[{key.module, key.slot}] = record.hash;
      } else if (const auto found = outputs.find({key.module, key.slot}); found != outputs.end()) {
        ++common;
        equal += found->second == record.hash;
      }
    }
  }
  return common > 0 && equal * 10 >= common * 9;
}

class SameData final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    if (evidence.places().size() < 2) {
      ++outcome.unchecked["the trace has one rank"];
      return;
    }
    const GivenInputs given = read_given(evidence, iteration);
    bool dealt = false;
    for (const auto& [axis, pairs] : neighbours_of(evidence.places())) {
      const bool tensor = evidence.is_tensor_axis(axis);
      const bool data = evidence.is_data_axis(axis);
      const bool other =
          !tensor && !data && evidence.copies().replicates(axis) && !is_stage_or_sequence(axis);
      if (tensor) same_along(axis, pairs, given, iteration, outcome);
      if (data || other) different_along(evidence, {axis, data}, pairs, given, iteration, outcome);
      dealt = dealt || data || other;
    }
    if (!dealt) ++outcome.unchecked["no data parallel axis is known"];
    if (given.turns.empty()) ++outcome.unchecked["no input of the model tells samples apart"];
  }

 private:
  static void same_along(const std::string& axis, const std::vector<RankPair>& pairs,
                         const GivenInputs& given, std::int64_t iteration, Outcome& outcome) {
    for (const auto& [one, other] : pairs) {
      if (one > other) continue;
      for (const auto& [turn, slots] : given.turns) {
        const auto theirs = given.turns.find({other, turn.second});
        if (turn.first != one || theirs == given.turns.end()) continue;
        for (const auto& [slot, shard] : slots) {
          const auto found = theirs->second.find(slot);
          if (found == theirs->second.end() || is_floating(shard.record->dtype)) continue;
          const Record& left = *shard.record;
          const Record& right = *found->second.record;
          if (left.shape != right.shape || left.layout != kNoLayout) continue;
          ++outcome.compared["inputs of tensor parallel ranks"];
          if (left.hash == right.hash) continue;
          Violation violation;
          violation.certainty = Certainty::likely;
          violation.iteration = iteration;
          violation.microbatch = turn.second;
          violation.ranks = {one, other};
          violation.module = kRootModule;
          violation.key = to_string(left.key);
          violation.what = "ranks " + std::to_string(one) + " and " + std::to_string(other) +
                           " are given other data (" + slot +
                           "), although they stand apart along " + axis +
                           " only, where ranks compute parts of the same samples";
          violation.advice =
              "does the data loader deal out by the data parallel rank, not by the global one?";
          outcome.report(std::move(violation));
        }
      }
    }
  }

  struct Axis {
    std::string name;
    bool known;  // as one that deals out data; else only its parameters say so
  };

  void different_along(const Evidence& evidence, const Axis& axis,
                       const std::vector<RankPair>& pairs, const GivenInputs& given,
                       std::int64_t iteration, Outcome& outcome) {
    std::map<std::int32_t, std::set<std::int32_t>> lines;  // by their first rank
    for (const auto& [one, other] : pairs) {
      if (one < other) lines[one].insert({one, other});
    }
    std::set<std::int32_t> seen;
    for (const auto& [first, ranks] : lines) {
      if (!seen.insert(first).second) continue;
      seen.insert(ranks.begin(), ranks.end());
      std::map<Sample, std::vector<Turn>> holders;
      std::size_t turns = 0;
      for (const auto& [turn, slots] : given.turns) {
        if (ranks.count(turn.first) == 0) continue;
        holders[given.sample(turn)].push_back(turn);
        ++turns;
      }
      if (turns > 0) outcome.compared["micro-batches of data parallel ranks"] += turns;
      report_shared(evidence, axis, ranks, holders, iteration, outcome);
    }
  }

  static void report_shared(const Evidence& evidence, const Axis& axis,
                            const std::set<std::int32_t>& ranks,
                            const std::map<Sample, std::vector<Turn>>& holders,
                            std::int64_t iteration, Outcome& outcome) {
    std::vector<Turn> turns;
    std::set<std::int32_t> odd;
    std::size_t shared = 0;
    for (const auto& [sample, same] : holders) {
      std::set<std::int32_t> by;
      for (const Turn& turn : same) by.insert(turn.first);
      if (by.size() < 2) continue;
      const auto other = std::find_if(same.begin(), same.end(), [&](const Turn& turn) {
        return turn.first != same.front().first;
      });
      if (!axis.known && !computes_the_same(evidence, iteration, same.front(), *other)) continue;
      ++shared;
      odd.insert(by.begin(), by.end());
      if (turns.empty()) turns = same;
    }
    if (shared == 0) return;
    Violation violation;
    // Samplers fill up the last micro-batch with samples that were dealt out before.
    violation.certainty = shared == holders.size() ? Certainty::likely : Certainty::possible;
    violation.iteration = iteration;
    violation.microbatch = turns.front().second;
    violation.ranks.assign(odd.begin(), odd.end());
    violation.module = kRootModule;
    const std::string all = odd.size() == ranks.size() ? "all ranks along " : "some ranks along ";
    violation.what = all + axis.name + " compute the same samples (" + ranks_text(violation.ranks) +
                     "): " + std::to_string(shared) + " of " + std::to_string(holders.size()) +
                     " different micro-batches are on more than one of them, first " +
                     turns_text(turns);
    violation.advice =
        "a DistributedSampler with this rank and world size, and its seed; sharded data sets are "
        "dealt out by the data parallel rank. One fixed batch for all is possible in a test";
    outcome.report(std::move(violation));
  }
};

}  // namespace

std::unique_ptr<Check> make_data() { return std::make_unique<SameData>(); }

}  // namespace ttrace::builtin
