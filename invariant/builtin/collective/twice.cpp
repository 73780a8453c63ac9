// SPDX-License-Identifier: Apache-2.0
// A sum is not summed again: when two members of a group put in the same bits, and these are what
// an earlier sum over both of them had put out, every addend counts twice. A sum over one axis and
// then over another one is what programs with two axes do: there members have different sums. A
// mean of equal numbers is that number, so means may follow.
#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

struct PutOut {
  const Joint* joint = nullptr;
  const Call* call = nullptr;
};

// By content, the outputs of sums in an iteration.
using Sums = std::multimap<Hash128, PutOut>;

Sums sums_of(const CollectiveLog& log, std::int64_t iteration) {
  Sums found;
  for (const Joint& joint : log.of(iteration)) {
    if (joint.group->size < 2) continue;
    for (const Call& call : joint.calls) {
      const bool counts = sums(*call.row) && (call.row->flags & kCollectiveFailed) == 0;
      if (counts && tells(call.output())) found.emplace(call.output()->hash, PutOut{&joint, &call});
    }
  }
  return found;
}

class Twice final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    const Sums earlier = sums_of(log, iteration);
    for (const Joint& joint : log.of(iteration)) {
      const Collective& row = *joint.calls.front().row;
      if (joint.group->size < 2 || !sums(row) || row.reduction == "avg") continue;
      std::map<Hash128, std::vector<const Call*>> inputs;
      bool looked = false;
      for (const Call& call : joint.calls) {
        const Record* input = call.input();
        if (input != nullptr && input->kind == RecordKind::hash) {
          ++outcome.unchecked["kept as hashes only: it may be a constant"];
        }
        if (!tells(input)) continue;
        looked = true;
        inputs[input->hash].push_back(&call);
      }
      if (looked) ++outcome.compared["inputs of sums"];
      for (const auto& [hash, calls] : inputs) {
        if (calls.size() < 2) continue;
        const Joint* source = source_of(earlier, hash, calls);
        if (source == nullptr) continue;
        if (!told_.emplace(group_text(evidence, *joint.group), row.module).second) continue;
        outcome.report(describe(evidence, *source, joint, calls));
      }
    }
  }

 private:
  // An earlier sum over at least two of these members that put this out on each of them.
  static const Joint* source_of(const Sums& earlier, const Hash128& hash,
                                const std::vector<const Call*>& calls) {
    std::map<const Joint*, std::size_t> holders;
    const auto [first, last] = earlier.equal_range(hash);
    for (auto sum = first; sum != last; ++sum) {
      const Call& output = *sum->second.call;
      for (const Call* call : calls) {
        const bool before = output.segment == call->segment && output.row < call->row;
        if (before && ++holders[sum->second.joint] >= 2) return sum->second.joint;
      }
    }
    return nullptr;
  }

  static Violation describe(const Evidence& evidence, const Joint& source, const Joint& joint,
                            const std::vector<const Call*>& calls) {
    Violation violation;
    const bool mean = source.calls.front().row->reduction == "avg";
    violation.certainty = mean ? Certainty::possible : Certainty::likely;
    violation.iteration = joint.iteration;
    violation.microbatch = joint.calls.front().row->microbatch;
    for (const Call* call : calls) violation.ranks.push_back(call->rank);
    violation.module = joint.calls.front().row->module;
    violation.key = to_string(calls.front()->input()->key);
    violation.what = named(evidence, joint) + ": " + ranks_text(violation.ranks) +
                     " put in what is already the result of " + named(evidence, source) +
                     ", so that each addend counts " + std::to_string(calls.size()) + " times";
    violation.advice =
        "two places that reduce the same tensor (a hook and the training loop, a module and what "
        "is around it); reduced again by a mean it would do no harm";
    return violation;
  }

  std::set<std::pair<std::string, std::string>> told_;  // groups and modules
};

}  // namespace

std::unique_ptr<Check> make_twice() { return std::make_unique<Twice>(); }

}  // namespace ttrace::builtin
