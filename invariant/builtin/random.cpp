// SPDX-License-Identifier: Apache-2.0
// Random numbers are equal or different as the mesh demands. The zeros that a dropout module leaves
// tell its random numbers. Two ranks along a tensor parallel axis that drop out the same
// activations (what both kept is equal) must drop the same elements; where they hold parts of an
// activation they must not, or the randomness of the parts is one.
#include <algorithm>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/evidence.hpp"
#include "invariant/builtin/values.hpp"
#include "libttrace/microbatch_inputs.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kLeast = 64;  // elements, zeros and kept ones each, that tell something
constexpr std::uint64_t kRow = 16;    // of a row that is dropped as a whole: padding, no dropout

struct MaskCounts {
  std::uint64_t both_kept = 0, both_zero = 0, one_zero = 0;
  std::uint64_t equal = 0;       // of those that both kept
  std::uint64_t mixed_rows = 0;  // runs of elements, some of them zero
  std::uint64_t rows = 0;
};

MaskCounts compare_masks(const Part& left, const Part& right) {
  MaskCounts counts;
  for_each_tile({left, right}, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t at = 0; at < tile[0].size(); at += kRow) {
      const std::size_t end = std::min<std::size_t>(at + kRow, tile[0].size());
      std::uint64_t zeros = 0;
      for (std::size_t i = at; i < end; ++i) {
        const bool one = tile[0][i] == 0;
        const bool other = tile[1][i] == 0;
        zeros += one;
        counts.both_zero += one && other;
        counts.one_zero += one != other;
        if (one || other) continue;
        ++counts.both_kept;
        counts.equal += tile[0][i] == tile[1][i];
      }
      ++counts.rows;
      counts.mixed_rows += zeros > 0 && zeros < end - at;
    }
  });
  return counts;
}

bool is_dropout(const ModuleInfo& module) {
  return module.class_name.find("Dropout") != std::string::npos;
}

class Random final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    for (const auto& [axis, pairs] : neighbours_of(evidence.places())) {
      for (const auto& [one, other] : pairs) {
        if (one < other) look_at_pair(evidence, iteration, axis, {one, other}, outcome);
      }
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (!outcome.compared.empty()) return;
    ++outcome.unchecked[evidence.places().size() < 2
                            ? "the trace has one rank"
                            : "no dropout module that drops anything was recorded on two ranks"];
  }

 private:
  static void look_at_pair(const Evidence& evidence, std::int64_t iteration,
                           const std::string& axis, const RankPair& pair, Outcome& outcome) {
    const SegmentReader* mine = evidence.trace().segment(pair.first, iteration);
    const SegmentReader* theirs = evidence.trace().segment(pair.second, iteration);
    if (mine == nullptr || theirs == nullptr) return;
    const auto& modules = evidence.rank(pair.first)->modules;
    std::map<Key, const Record*> others;
    for (const Record& record : theirs->records()) {
      if (record.key.phase == Phase::forward) others.emplace(record.key, &record);
    }
    for (const Record& record : mine->records()) {
      if (record.key.phase != Phase::forward || record.key.slot != "output.0") continue;
      const auto module = modules.find(record.key.module);
      if (module == modules.end() || !is_dropout(module->second)) continue;
      const auto other = others.find(record.key);
      if (other == others.end() || other->second->shape != record.shape) continue;
      const auto left = whole(*mine, &record);
      const auto right = whole(*theirs, other->second);
      if (!left || !right) continue;
      judge(evidence, axis, pair, record, compare_masks(*left, *right), outcome);
    }
  }

  static void judge(const Evidence& evidence, const std::string& axis, const RankPair& pair,
                    const Record& record, const MaskCounts& counts, Outcome& outcome) {
    const std::uint64_t zeros = counts.both_zero + counts.one_zero;
    if (zeros < kLeast || counts.both_kept < kLeast || counts.mixed_rows * 2 < counts.rows) return;
    ++outcome.compared["dropout outputs on two ranks"];
    const bool same_values = counts.equal * 100 >= counts.both_kept * 99;
    const bool same_zeros = counts.one_zero == 0;
    Violation violation;
    violation.iteration = record.key.iteration;
    violation.microbatch = record.key.microbatch;
    violation.ranks = {pair.first, pair.second};
    violation.module = record.key.module;
    violation.key = to_string(record.key);
    const std::string ranks =
        "ranks " + std::to_string(pair.first) + " and " + std::to_string(pair.second);
    const std::string place = " in " + evidence.described(record.key.module);
    if (same_values && !same_zeros) {
      // Data parallel ranks drop out as they like; that they got the same samples is told by data.
      if (!evidence.is_tensor_axis(axis)) return;
      violation.certainty = Certainty::certain;
      violation.what = ranks + " drop out different elements of the same activation" + place +
                       ": " + std::to_string(counts.one_zero) + " of " + counted(zeros, "zero") +
                       " are on one of them only";
      violation.advice =
          "activations that all ranks along " + axis + " hold whole need one seed for all of them";
    } else if (!same_values && same_zeros) {
      // Many programs seed data parallel ranks alike, and mean it.
      violation.certainty = evidence.is_tensor_axis(axis) ? Certainty::likely : Certainty::possible;
      violation.what = ranks + " drop out the same elements of different activations" + place +
                       ": their random numbers along " + axis + " are one sequence";
      violation.advice = "parts of an activation need a seed for each rank along " + axis;
    } else {
      return;
    }
    outcome.report(std::move(violation));
  }
};

}  // namespace

std::unique_ptr<Check> make_random() { return std::make_unique<Random>(); }

}  // namespace ttrace::builtin
