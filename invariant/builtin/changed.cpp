// SPDX-License-Identifier: Apache-2.0
// Parameters change if and only if they are trainable: one that has a gradient changes in the step,
// a frozen one never does, and one that no optimizer updates or that never gets a gradient is
// named.
#include <algorithm>
#include <cmath>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/step_replay.hpp"
#include "invariant/builtin/values.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

bool is_trainable(const Record* value) {
  return value != nullptr && (value->flags & kFlagTrainable) != 0;
}

bool has_gradient(const Record* gradient) {
  return gradient != nullptr && gradient->kind != RecordKind::hash &&
         gradient->statistics.sum_squares > 0 && gradient->statistics.nan_count == 0 &&
         gradient->statistics.inf_count == 0;
}

enum class Changed : std::uint8_t { yes, no, unknown };

Changed change_between(const ParameterStep& step) {
  const bool master = step.master != nullptr && step.master_after != nullptr;
  const Record* before = master ? step.master : step.value;
  const Record* after = master ? step.master_after : step.after;
  if (before == nullptr || after == nullptr) return Changed::unknown;
  if (before->shape == after->shape && before->dtype == after->dtype) {
    return before->hash == after->hash ? Changed::no : Changed::yes;
  }
  const auto parts = aligned(*step.segment, {before, after});
  if (!parts) return Changed::unknown;
  bool changed = false;
  for_each_tile(*parts,
                [&](const Tile& tile, std::uint64_t) { changed = changed || tile[0] != tile[1]; });
  return changed ? Changed::yes : Changed::no;
}

// Whether a frozen parameter moved towards a trainable one of its shape: it is an average of it.
// Rounding leaves elements where they are, it turns none around.
bool follows(const ParameterStep& before, const ParameterStep& after, const ParameterStep& other) {
  const auto old = whole(*before.segment, before.value);
  const auto now = whole(*after.segment, after.value);
  const auto target = whole(*other.segment, other.after);
  if (!old || !now || !target || target->count != old->count) return false;
  std::uint64_t moved = 0;
  std::uint64_t towards = 0;
  for_each_tile({*old, *now, *target}, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) {
      const double move = tile[1][i] - tile[0][i];
      moved += move != 0;
      towards += move * (tile[2][i] - tile[0][i]) > 0;
    }
  });
  return moved > 0 && towards * 50 >= moved * 49;
}

struct NeverUpdated {
  std::set<std::int32_t> ranks;
  bool output_has_gradient = false;
};

class ChangedIffTrainable final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    const GradientSums sums(evidence, evidence.copies(), iteration);
    look_for_gradients(evidence, iteration);
    count_left_out(evidence, iteration);
    for (const auto& [rank, where] : evidence.places()) {
      const RankInfo* info = evidence.rank(rank);
      const auto told = told_updates(*info, iteration);
      std::uint64_t still = 0;
      std::uint64_t moved = 0;
      for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
        if (step.value == nullptr) continue;
        if (!is_trainable(step.value)) {
          look_at_frozen(evidence, rank, iteration, name, step, outcome);
          continue;
        }
        const Changed changed = change_between(step);
        if (changed == Changed::unknown) continue;
        ++(changed == Changed::yes ? moved : still);
        look_at_unowned(evidence, rank, iteration, name, step, changed, outcome);
        look_at_next(evidence, rank, iteration, name, step, outcome);
        if (changed == Changed::yes || !has_gradient(step.gradient())) {
          if (step.gradient() != nullptr) ++outcome.compared["trainable parameters"];
          continue;
        }
        if (told_all_ && stepped_.count(name) == 0) continue;  // no optimizer has it: told above
        const auto update = told.find(name);
        look_at_still(evidence, rank, iteration, name,
                      update == told.end() ? nullptr : &update->second, sums, outcome);
      }
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    for (const auto& [name, state] : never_) {
      if (with_gradient_.count(name) != 0) continue;
      Violation violation;
      violation.certainty = state.output_has_gradient ? Certainty::likely : Certainty::possible;
      violation.iteration = evidence.iterations().front();
      violation.ranks.assign(state.ranks.begin(), state.ranks.end());
      violation.module = name;
      violation.what = name + " is trainable and gets no gradient in any captured iteration (" +
                       ranks_text(violation.ranks) + ")";
      if (state.output_has_gradient) {
        violation.what += ", although the output of its module gets one";
      }
      violation.advice =
          "a detach(), no_grad() or .data on its way to the loss; a module that is not used; else "
          "freeze it";
      violation.evidence = {{"module", evidence.described(owner_of(name))}};
      outcome.report(std::move(violation));
    }
  }

 private:
  static Violation about(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                         const std::string& name, Certainty certainty, std::string what,
                         std::string advice) {
    Violation violation;
    violation.certainty = certainty;
    violation.iteration = iteration;
    violation.ranks = {rank};
    violation.module = name;
    violation.key = "it" + std::to_string(iteration) + "/step/" + name + "/param";
    violation.what = name + " on rank " + std::to_string(rank) + " " + std::move(what);
    violation.advice = std::move(advice);
    violation.evidence = {{"module", evidence.described(owner_of(name))}};
    return violation;
  }

  // Which parameters have a gradient on some rank, and which have none although they were stepped.
  void look_for_gradients(const Evidence& evidence, std::int64_t iteration) {
    held_.clear();
    stepped_.clear();
    told_all_ = false;
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment == nullptr) continue;
      for (const auto& [name, update] : told_updates(*evidence.rank(rank), iteration)) {
        stepped_.insert(name);
        told_all_ = true;
      }
      std::set<std::string> outputs;
      for (const Record& record : segment->records()) {
        if (record.key.phase == Phase::backward) outputs.insert(record.key.module);
      }
      for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
        if (step.gradient() != nullptr) {
          with_gradient_.insert(name);
          held_.insert(name);
        }
        if (!step.states.empty()) stepped_.insert(name);
        if (step.after == nullptr || (step.after->flags & kFlagNoGradient) == 0) continue;
        stepped_.insert(name);
        if (!is_trainable(step.value)) continue;
        NeverUpdated& never = never_[name];
        never.ranks.insert(rank);
        const std::string owner = owner_of(name);
        if (outputs.count(owner) != 0 && is_leaf(evidence, rank, owner)) {
          never.output_has_gradient = true;
        }
      }
    }
  }

  void count_left_out(const Evidence& evidence, std::int64_t iteration) {
    trainable_ = left_out_ = 0;
    for (const auto& [rank, where] : evidence.places()) {
      for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
        if (!is_trainable(step.value) || step.after == nullptr) continue;
        ++trainable_;
        left_out_ += stepped_.count(name) == 0 && (told_all_ || held_.count(name) == 0);
      }
    }
  }

  // Containers may hold parameters that only some of their code uses.
  static bool is_leaf(const Evidence& evidence, std::int32_t rank, const std::string& module) {
    const auto& modules = evidence.rank(rank)->modules;
    if (module == kRootModule) return modules.size() <= 1;
    const auto next = modules.lower_bound(module + ".");
    return next == modules.end() || next->first.rfind(module + ".", 0) != 0;
  }

  void look_at_unowned(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                       const std::string& name, const ParameterStep& step, Changed changed,
                       Outcome& outcome) {
    if (stepped_.count(name) != 0 || step.after == nullptr) return;
    if (held_.count(name) != 0 && !told_all_) return;
    ++outcome.compared["parameters without an optimizer"];
    if (changed == Changed::yes || !told_.insert(name).second) return;
    // A head that is trained on a body that is not frozen, only left out, is meant.
    const Certainty certainty =
        2 * left_out_ > trainable_ ? Certainty::possible : Certainty::likely;
    outcome.report(about(evidence, rank, iteration, name, certainty,
                         "is trainable, but no optimizer on any rank updates it",
                         "was it made, replaced or moved after the optimizer was given its "
                         "parameters, or left out of the parameter groups?"));
  }

  // What is written into it after the optimizer's step.
  void look_at_next(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                    const std::string& name, const ParameterStep& step, Outcome& outcome) {
    const ParameterSteps& later = evidence.parameters(rank, iteration + 1);
    const auto next = later.find(name);
    if (step.after == nullptr || step.steps > 1 || next == later.end()) return;
    const Record* value = next->second.value;
    if (value == nullptr || value->shape != step.after->shape ||
        value->dtype != step.after->dtype) {
      return;
    }
    ++outcome.compared["parameters between two steps"];
    if (value->hash == step.after->hash || !moved_.insert(name).second) return;
    outcome.report(about(evidence, rank, iteration, name, Certainty::possible,
                         "changes after the optimizer's step and before the next forward pass",
                         "something else writes into it: a projection or an average, or an update "
                         "that is made twice"));
  }

  static void look_at_still(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                            const std::string& name, const ToldUpdate* told,
                            const GradientSums& sums, Outcome& outcome) {
    if (told == nullptr) {
      ++outcome.unchecked["a gradient and no change, and nothing says how small the step is"];
      return;
    }
    const StepReplay replay = replay_step(evidence, rank, iteration, name, *told, sums);
    if (!replay.unknown.empty()) {
      ++outcome.unchecked["no change, and the step cannot be computed: " + replay.unknown];
      return;
    }
    ++outcome.compared["trainable parameters"];
    if (replay.should_change == 0) return;  // rounded away, or a learning rate of 0
    outcome.report(about(evidence, rank, iteration, name, Certainty::certain,
                         "has a gradient and does not change in the step, which should move " +
                             counted(replay.should_change, "element"),
                         "is the stepped tensor still the one that the module uses, and are "
                         "masters copied back?"));
  }

  static void look_at_frozen(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                             const std::string& name, const ParameterStep& step, Outcome& outcome) {
    const ParameterSteps& later = evidence.parameters(rank, iteration + 1);
    const auto next = later.find(name);
    if (next == later.end() || next->second.value == nullptr) {
      ++outcome.unchecked["frozen parameters whose next value was not captured"];
      return;
    }
    ++outcome.compared["frozen parameters"];
    if (next->second.value->hash == step.value->hash) return;
    for (const auto& [other, candidate] : evidence.parameters(rank, iteration)) {
      const bool alike = candidate.after != nullptr && candidate.after->shape == step.value->shape;
      if (alike && follows(step, next->second, candidate)) return;
    }
    outcome.report(about(evidence, rank, iteration, name, Certainty::likely,
                         "is frozen (requires_grad is false) and changes before the next iteration",
                         "does an optimizer hold it, or does something write into it?"));
  }

  std::map<std::string, NeverUpdated> never_;
  std::set<std::string> with_gradient_;
  // Of this iteration: parameters with a gradient on some rank, and those that some optimizer has.
  std::set<std::string> held_, stepped_;
  std::size_t trainable_ = 0, left_out_ = 0;  // of all ranks; the latter are in no optimizer
  bool told_all_ = false;                     // the trace says what optimizers have
  std::set<std::string> told_, moved_;        // already reported
};

}  // namespace

std::unique_ptr<Check> make_changed() { return std::make_unique<ChangedIffTrainable>(); }

}  // namespace ttrace::builtin
