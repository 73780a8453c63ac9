// SPDX-License-Identifier: Apache-2.0
// Sums that somebody completes. See accept_completed_sums in judge.hpp. A reduced gradient may be
// declared a sum that the optimizer itself forms (DTensor does so); then the ranks must agree on
// all that the step made of it. An updated parameter that is still a sum is never accepted: nothing
// comes after it.
#include <algorithm>
#include <optional>

#include "diff/judge.hpp"
#include "diff/parts.hpp"

namespace ttrace {
namespace {

bool is_sum_problem(const Finding& finding) {
  return finding.kind == FindingKind::partial_incomplete;
}

bool is_copy_problem(const Finding& finding) {
  return finding.kind == FindingKind::replica_conflict;
}

bool is_clean(const Outcome& outcome) { return outcome.compared && outcome.findings.empty(); }

// Whether something that comes after a sum shows that it was made.
class Completion {
 public:
  Completion(const Alignment& alignment, const Side& reference, const Flow& flow,
             const std::vector<Outcome>& outcomes)
      : pairs_(alignment.pairs), reference_(reference), flow_(flow), outcomes_(outcomes) {}

  [[nodiscard]] bool completes(const Key& key) const {
    if (key.phase == Phase::forward || key.phase == Phase::recompute) {
      return output_completes(key) || next_is_clean(key, Phase::forward);
    }
    if (carries_seed(key)) {
      return has_parameters(key) ? gradients_complete(key) : next_is_clean(key, Phase::backward);
    }
    return key.phase == Phase::grad && step_completes(key);
  }

  // All that the step made of the parameter's gradient is right.
  [[nodiscard]] bool step_is_right(const Key& key) const {
    bool any = false;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].key.phase != Phase::step || pairs_[i].key.module != key.module) continue;
      if (!is_clean(outcomes_[i])) return false;
      any = true;
    }
    return any;
  }

 private:
  // The output of the nearest module around it that has one, of the same micro-batch.
  [[nodiscard]] bool output_completes(const Key& key) const {
    for (std::string module = key.module; module != kRootModule;) {
      module = parent_of(module);
      bool any = false;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const Key& other = pairs_[i].key;
        if (other.phase != Phase::forward || other.module != module || is_input(other) ||
            other.microbatch != key.microbatch || !pairs_[i].candidate->layout.partial.empty()) {
          continue;
        }
        if (!is_clean(outcomes_[i])) return false;
        any = true;
      }
      if (any) return true;
    }
    return false;
  }

  // The next tensor outside of the module that is not a sum itself: in the forward pass what enters
  // a module without being a module's output, for reductions between modules are made before it;
  // backwards any gradient.
  [[nodiscard]] bool next_is_clean(const Key& key, Phase phase) const {
    const Place own = flow_.place(key);
    std::optional<std::size_t> next;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const Key& other = pairs_[i].key;
      const std::vector<Finding>& findings = outcomes_[i].findings;
      const bool glue = is_input(other) && other.module != kRootModule;
      if (other.phase != phase || other.microbatch != key.microbatch ||
          (phase == Phase::forward && !glue) || pairs_[i].same_as != kNoPair ||
          !is_floating(pairs_[i].candidate->dtype) || lies_in(other.module, key.module) ||
          std::any_of(findings.begin(), findings.end(), is_sum_problem)) {
        continue;
      }
      const Place place = flow_.place(other);
      if (own < place && (!next || place < flow_.place(pairs_[*next].key))) next = i;
    }
    return next && is_clean(outcomes_[*next]);
  }

  [[nodiscard]] bool has_parameters(const Key& key) const {
    return std::any_of(reference_.groups.begin(), reference_.groups.end(), [&](const auto& group) {
      return group.first.phase == Phase::grad && group.first.slot == "reduced" &&
             lies_in(group.first.module, key.module);
    });
  }

  // The reduced gradients of the module's parameters.
  [[nodiscard]] bool gradients_complete(const Key& key) const {
    bool any = false;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const Key& other = pairs_[i].key;
      if (other.phase != Phase::grad || other.slot != "reduced") continue;
      if (!lies_in(other.module, key.module)) continue;
      if (!is_clean(outcomes_[i])) return false;
      any = true;
    }
    return any;
  }

  // What the step made of the parameter's gradient agrees between the ranks, as it can only after
  // the addends were added. Whether it also agrees with the reference is the step's own matter:
  // clipping by another norm, say, changes every update.
  [[nodiscard]] bool step_completes(const Key& key) const {
    bool any = false;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].key.phase != Phase::step || pairs_[i].key.module != key.module) continue;
      const std::vector<Finding>& findings = outcomes_[i].findings;
      if (!outcomes_[i].compared ||
          std::any_of(findings.begin(), findings.end(), is_copy_problem)) {
        return false;
      }
      any = true;
    }
    return any;
  }

  const std::vector<Pair>& pairs_;
  const Side& reference_;
  const Flow& flow_;
  const std::vector<Outcome>& outcomes_;
};

}  // namespace

bool all_addends(const LogicalTensor& tensor) {
  for (const Source& source : sources_of(tensor)) {
    std::uint64_t expected = 1;
    for (const std::string& axis : tensor.layout.partial) {
      expected *= position_on(source.first().shard.where, axis).size;
    }
    if (source.shards.size() != expected) return false;
  }
  return true;
}

void accept_completed_sums(const Alignment& alignment, const Side& reference, const Flow& flow,
                           std::vector<Outcome>& outcomes) {
  const Completion completion(alignment, reference, flow, outcomes);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    std::vector<Finding>& findings = outcomes[i].findings;
    const Pair& pair = alignment.pairs[i];
    const Key& key = pair.key;
    if (outcomes[i].sum_is_right && completion.step_is_right(key)) {
      findings.clear();
      outcomes[i].score = 0;
      outcomes[i].compared = true;
    }
    if (!std::any_of(findings.begin(), findings.end(), is_sum_problem)) continue;
    if (!std::all_of(findings.begin(), findings.end(), is_sum_problem)) continue;
    if (!all_addends(*pair.reference) || !all_addends(*pair.candidate)) continue;
    if (completion.completes(key)) findings.clear();
  }
}

}  // namespace ttrace
