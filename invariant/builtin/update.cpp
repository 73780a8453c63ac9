// SPDX-License-Identifier: Apache-2.0
// The update is the optimizer's: from the parameter, its gradient and the state before, the rule of
// the optimizer gives the state and the parameter after the step, up to rounding. And what is
// stored in a coarser type is the rounded master.
#include <array>
#include <cmath>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/step_replay.hpp"
#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {
namespace {

const char* advice_for(const std::string& tensor) {
  if (tensor == "param") {
    return "is the parameter changed outside of the optimizer, updated twice or in another type, "
           "or copied from another rank?";
  }
  return "is the state reset, shared, loaded for another parameter, or kept in a coarser type?";
}

// Elements that are not their master, rounded to the parameter's type.
std::uint64_t count_unrounded(const std::vector<Part>& parts) {
  const DType type = parts[0].record->dtype;
  std::uint64_t unequal = 0;
  std::array<std::byte, 8> rounded{};
  for_each_tile(parts, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) {
      encode(type, tile[1][i], rounded.data(), 0);
      const double right = decode(type, rounded.data(), 0);
      const bool both_nan = std::isnan(right) && std::isnan(tile[0][i]);
      unequal += right == tile[0][i] || both_nan ? 0 : 1;
    }
  });
  return unequal;
}

class Update final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    const GradientSums sums(evidence, evidence.copies(), iteration);
    for (const auto& [rank, where] : evidence.places()) {
      const RankInfo* info = evidence.rank(rank);
      if (info == nullptr || evidence.trace().segment(rank, iteration) == nullptr) continue;
      look_at_masters(evidence, rank, iteration, outcome);
      const auto told = told_updates(*info, iteration);
      if (told.empty()) {
        ++outcome.unchecked["the trace does not say what the optimizer was told to do"];
      }
      for (const auto& [name, update] : told) {
        const StepReplay replay = replay_step(evidence, rank, iteration, name, update, sums);
        if (!replay.unknown.empty()) {
          ++outcome.unchecked[replay.unknown];
          continue;
        }
        for (const std::string& state : replay.skipped) {
          ++outcome.unchecked[state + " before the step: the iteration before was not captured"];
        }
        report(evidence, rank, iteration, name, update, replay, outcome);
      }
    }
  }

 private:
  static void report(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                     const std::string& name, const ToldUpdate& told, const StepReplay& replay,
                     Outcome& outcome) {
    for (const auto& [tensor, error] : replay.tensors) {
      ++outcome.compared[tensor == "param" ? "parameters after the step" : "optimizer states"];
      if (error.wrong == 0) continue;
      Violation violation;
      violation.iteration = iteration;
      violation.ranks = {rank};
      violation.module = name;
      violation.key = "it" + std::to_string(iteration) + "/step/" + name + "/" + tensor;
      violation.what = violation.key + " on rank " + std::to_string(rank) + " is not what " +
                       told.group->optimizer +
                       " makes of the gradient: " + std::to_string(error.wrong) + " of " +
                       counted(error.elements, "element") + " are off, the worst by " +
                       printed(error.worst) + " x rounding";
      if (tensor == "param") {
        violation.what += replay.changed
                              ? "; the change is " + printed(replay.factor) + " x the right one"
                              : "; it did not change at all";
      }
      violation.advice = advice_for(tensor);
      violation.evidence = {{"module", evidence.described(owner_of(name))}};
      outcome.report(std::move(violation));
    }
  }

  static void look_at_masters(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                              Outcome& outcome) {
    for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
      if (step.after == nullptr || step.master_after == nullptr || step.steps > 1) continue;
      if (size_of(step.after->dtype) >= size_of(step.master_after->dtype)) continue;
      const auto parts = aligned(*step.segment, {step.after, step.master_after});
      if (!parts) {
        ++outcome.unchecked["masters whose bytes or pieces are not known"];
        continue;
      }
      ++outcome.compared["parameters against their masters"];
      const std::uint64_t wrong = count_unrounded(*parts);
      if (wrong == 0) continue;
      Violation violation;
      violation.iteration = iteration;
      violation.ranks = {rank};
      violation.module = name;
      violation.key = to_string(step.after->key);
      violation.what = violation.key + " on rank " + std::to_string(rank) + ": " +
                       std::to_string(wrong) + " of " + counted(parts->front().count, "element") +
                       " are not the " + std::string(name_of(step.master_after->dtype)) +
                       " master, rounded";
      violation.advice = "are masters copied to the parameters after each step, on all ranks?";
      outcome.report(std::move(violation));
    }
  }
};

}  // namespace

std::unique_ptr<Check> make_update() { return std::make_unique<Update>(); }

}  // namespace ttrace::builtin
