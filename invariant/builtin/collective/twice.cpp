// SPDX-License-Identifier: Apache-2.0
// A sum is not summed again: when two members of a group put in the same bits, and these are what
// an earlier sum over both of them had put out, or that times a number, every addend counts again.
// A sum over one axis and then over another one is what programs with two axes do: there members
// have different sums. A mean of equal numbers is that number, so means may follow, also those that
// are a sum and a division, before or after it: what becomes of the result tells (twice_use.hpp).
#include <algorithm>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/collective/scale.hpp"
#include "invariant/builtin/collective/twice_use.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

struct PutOut {
  const Joint* joint = nullptr;
  const Call* call = nullptr;
};

// The outputs of sums in an iteration.
class Sums {
 public:
  Sums(const CollectiveLog& log, std::int64_t iteration) {
    for (const Joint& joint : log.of(iteration)) {
      if (joint.group->size < 2) continue;
      for (const Call& call : joint.calls) {
        const bool counts = sums(*call.row) && (call.row->flags & kCollectiveFailed) == 0;
        const Record* output = call.output();
        if (!counts || !tells(output)) continue;
        by_hash_.emplace(output->hash, PutOut{&joint, &call});
        by_size_.emplace(std::pair(call.segment, element_count(output->shape)),
                         PutOut{&joint, &call});
      }
    }
  }

  // Of which these calls, with equal inputs, put in the result again.
  [[nodiscard]] std::optional<Again> source_of(const Joint& joint,
                                               const std::vector<const Call*>& calls) const {
    if (const Joint* same = holder_of(calls.front()->input()->hash, calls)) {
      return Again{same, &joint, calls, 1};
    }
    const Call& first = *calls.front();
    const Record& input = *first.input();
    const auto [begin, end] =
        by_size_.equal_range(std::pair(first.segment, element_count(input.shape)));
    for (auto sum = begin; sum != end; ++sum) {
      const Call& output = *sum->second.call;
      if (output.row >= first.row) continue;
      const auto scale = scale_between(*output.segment, *output.output(), *first.segment, input);
      if (!scale) continue;
      const Joint* source = holder_of(output.output()->hash, calls);
      if (source != nullptr) return Again{source, &joint, calls, *scale};
    }
    return inside_of_one(joint, calls);
  }

 private:
  // A bucket of several gradients was summed before, this is one of them.
  [[nodiscard]] std::optional<Again> inside_of_one(const Joint& joint,
                                                   const std::vector<const Call*>& calls) const {
    const Call& first = *calls.front();
    const Record& input = *first.input();
    auto sum = by_size_.upper_bound(std::pair(first.segment, element_count(input.shape)));
    for (; sum != by_size_.end() && sum->first.first == first.segment; ++sum) {
      const Call& output = *sum->second.call;
      if (output.row >= first.row) continue;
      const Joint* source = holder_of(output.output()->hash, calls);
      if (source == nullptr || searched_ == kSearches) continue;
      ++searched_;
      const auto scale = scale_within(*output.segment, *output.output(), *first.segment, input);
      if (scale) return Again{source, &joint, calls, same_scale(*scale, 1) ? 1 : *scale};
    }
    return std::nullopt;
  }

  // An earlier sum over at least two of these members that put this out on each of them.
  [[nodiscard]] const Joint* holder_of(const Hash128& hash,
                                       const std::vector<const Call*>& calls) const {
    std::map<const Joint*, std::size_t> holders;
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto sum = first; sum != last; ++sum) {
      const Call& output = *sum->second.call;
      for (const Call* call : calls) {
        const bool before = output.segment == call->segment && output.row < call->row;
        if (before && ++holders[sum->second.joint] >= 2) return sum->second.joint;
      }
    }
    return nullptr;
  }

  static constexpr std::size_t kSearches = 64;  // in an iteration: they read whole buckets

  mutable std::size_t searched_ = 0;
  std::multimap<Hash128, PutOut> by_hash_;
  std::multimap<std::pair<const SegmentReader*, std::uint64_t>, PutOut> by_size_;
};

class Twice final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    const std::vector<Again> found = find(log, iteration, outcome);
    std::set<const Collective*> chain;  // calls that such gradients pass through
    for (const Again& again : found) {
      for (const Joint* joint : {again.source, again.joint}) {
        for (const Call& call : joint->calls) chain.insert(call.row);
      }
    }
    for (const Again& again : found) {
      const TwiceUse use = use_of(evidence, flow_, again, chain);
      if (use.harmless) continue;
      const std::string& module = again.joint->calls.front().row->module;
      // One place in a program, one line; a surer one comes beside it.
      if (!told_.emplace(group_text(evidence, *again.joint->group), module, use.certainty).second) {
        continue;
      }
      outcome.report(describe(evidence, again, use));
    }
  }

 private:
  static std::vector<Again> find(const CollectiveLog& log, std::int64_t iteration,
                                 Outcome& outcome) {
    std::vector<Again> found;
    const Sums earlier(log, iteration);
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
        if (auto again = earlier.source_of(joint, calls)) found.push_back(std::move(*again));
      }
    }
    return found;
  }

  static Violation describe(const Evidence& evidence, const Again& again, const TwiceUse& use) {
    Violation violation;
    const Call& first = *again.calls.front();
    violation.certainty = use.certainty;
    violation.iteration = again.joint->iteration;
    violation.microbatch = first.row->microbatch;
    for (const Call* call : again.calls) violation.ranks.push_back(call->rank);
    violation.module = first.row->module;
    violation.key = to_string(first.input()->key);
    const std::string scaled = again.scale == 1 ? "" : " times " + printed(again.scale);
    violation.what = named(evidence, *again.joint) + ": " + ranks_text(violation.ranks) +
                     " put in what is already the result of " + named(evidence, *again.source) +
                     scaled + ", so that each addend counts " + std::to_string(again.calls.size()) +
                     " times";
    violation.advice =
        "two places that reduce the same tensor (a hook and the training loop, a module and what "
        "is around it); reduced again by a mean it would do no harm";
    violation.evidence = use.evidence;
    return violation;
  }

  GradientFlow flow_;
  std::set<std::tuple<std::string, std::string, Certainty>> told_;  // groups and modules
};

}  // namespace

std::unique_ptr<Check> make_twice() { return std::make_unique<Twice>(); }

}  // namespace ttrace::builtin
