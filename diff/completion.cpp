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

// The output of the nearest module around it that has one, of the same micro-batch.
bool output_completes(const Key& key, const Alignment& alignment,
                      const std::vector<Outcome>& outcomes) {
  for (std::string module = key.module; module != kRootModule;) {
    module = parent_of(module);
    bool any = false;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Key& other = alignment.pairs[i].key;
      if (other.phase != Phase::forward || other.module != module || is_input(other) ||
          other.microbatch != key.microbatch ||
          !alignment.pairs[i].candidate->layout.partial.empty())
        continue;
      if (!is_clean(outcomes[i])) return false;
      any = true;
    }
    if (any) return true;
  }
  return false;
}

// What enters a module next without being any module's output is made of outputs: of this one, too,
// as the reduction stands between modules.
bool glue_completes(const Key& key, const Alignment& alignment, const Flow& flow,
                    const std::vector<Outcome>& outcomes) {
  const Place own = flow.place(key);
  std::optional<std::size_t> next;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Key& other = alignment.pairs[i].key;
    if (other.phase != Phase::forward || other.microbatch != key.microbatch || !is_input(other) ||
        other.module == kRootModule || !is_floating(alignment.pairs[i].candidate->dtype)) {
      continue;
    }
    if (!(own < flow.place(other))) continue;
    if (!next || flow.place(other) < flow.place(alignment.pairs[*next].key)) next = i;
  }
  return next && is_clean(outcomes[*next]);
}

// The reduced gradients of the module's parameters.
bool gradients_complete(const Key& key, const Alignment& alignment,
                        const std::vector<Outcome>& outcomes) {
  bool any = false;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Key& other = alignment.pairs[i].key;
    if (other.phase != Phase::grad || other.slot != "reduced") continue;
    if (!lies_in(other.module, key.module)) continue;
    if (!is_clean(outcomes[i])) return false;
    any = true;
  }
  return any;
}

// What the step made of the parameter's gradient agrees between the ranks, as it can only after the
// addends were added. Whether it also agrees with the reference is the step's own matter: clipping
// by another norm, say, changes every update.
bool step_completes(const Key& key, const Alignment& alignment,
                    const std::vector<Outcome>& outcomes) {
  bool any = false;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Key& other = alignment.pairs[i].key;
    if (other.phase != Phase::step || other.module != key.module) continue;
    const std::vector<Finding>& findings = outcomes[i].findings;
    if (!outcomes[i].compared || std::any_of(findings.begin(), findings.end(), is_copy_problem)) {
      return false;
    }
    any = true;
  }
  return any;
}

bool completes(const Key& key, const Alignment& alignment, const Flow& flow,
               const std::vector<Outcome>& outcomes) {
  if (key.phase == Phase::forward || key.phase == Phase::recompute) {
    return output_completes(key, alignment, outcomes) ||
           glue_completes(key, alignment, flow, outcomes);
  }
  if (carries_seed(key)) return gradients_complete(key, alignment, outcomes);
  return key.phase == Phase::grad && step_completes(key, alignment, outcomes);
}

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

void accept_completed_sums(const Alignment& alignment, const Flow& flow,
                           std::vector<Outcome>& outcomes) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    std::vector<Finding>& findings = outcomes[i].findings;
    const Pair& pair = alignment.pairs[i];
    const Key& key = pair.key;
    if (!std::any_of(findings.begin(), findings.end(), is_sum_problem)) continue;
    if (!std::all_of(findings.begin(), findings.end(), is_sum_problem)) continue;
    if (!all_addends(*pair.reference) || !all_addends(*pair.candidate)) continue;
    if (completes(key, alignment, flow, outcomes)) findings.clear();
  }
}

}  // namespace ttrace
