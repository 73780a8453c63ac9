// SPDX-License-Identifier: Apache-2.0
// Replicas agree: parameters, gradients after the reduction and optimizer states that several ranks
// hold are bit-equal on them. All ranks compute the same update of the same numbers; where they do
// not, a reduction is missing or incomplete, and the replicas drift apart from there on.
#include <algorithm>
#include <tuple>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/conflict.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

std::string noun_of(const Key& key) {
  if (key.phase == Phase::param)
    return key.slot == "master" ? "masters before" : "parameters before";
  if (key.phase == Phase::grad) return key.slot == "clipped" ? "clipped gradients" : "gradients";
  if (key.slot == "param") return "parameters after";
  return key.slot == "master" ? "masters after" : "optimizer states";
}

std::string advice_for(const Key& key, const std::string& axes) {
  if (key.phase == Phase::param) {
    return "were the parameters broadcast" + axes +
           " before the first step, and equal after the "
           "step before?";
  }
  if (key.phase != Phase::grad)
    return "gradients that differ come first; else look at the optimizer";
  if (key.slot == "clipped") return "do all ranks clip, and by the same norm?";
  return "is the gradient reduced" + axes +
         ": DDP.forward called, no_sync left before the last "
         "backward pass, the parameter in the list of what is reduced?";
}

// The axes along which the ranks of the set stand apart.
std::string axes_of(const CopySet& set) {
  std::string text;
  for (const auto& [name, position] : set.front().where) {
    const bool apart = std::any_of(set.begin(), set.end(), [&, &name = name](const Shard& shard) {
      return position_on(shard.where, name).coord != position_on(set.front().where, name).coord;
    });
    if (apart) text += (text.empty() ? "" : " or ") + name;
  }
  return text.empty() ? "" : " over " + text;
}

Violation conflicting(const Evidence& evidence, const Key& key, const CopySet& set,
                      const Conflict& conflict, const Copies& copies) {
  Violation violation;
  violation.certainty = copies.certainty;
  violation.iteration = key.iteration;
  violation.ranks = conflict.odd;
  violation.module = key.module;
  violation.key = to_string(key);
  violation.what = to_string(key) + " is not the same on all ranks that hold it: " + conflict.who;
  if (conflict.error) violation.what += ", relative error " + printed(*conflict.error);
  violation.advice = advice_for(key, axes_of(set));
  violation.evidence = {{"copies because", copies.how},
                        {"module", evidence.described(owner_of(key.module))}};
  return violation;
}

class Replicas final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    if (evidence.places().size() < 2) {
      ++outcome.unchecked["the trace has one rank, which has no copies"];
      return;
    }
    // In the order in which a step makes them, so that causes come before effects.
    std::vector<std::pair<std::tuple<Phase, bool, bool>, const ShardGroups::value_type*>> ordered;
    const ShardGroups& groups = evidence.parameter_shards(iteration);
    for (const auto& entry : groups) {
      const Key& key = entry.first;
      const bool parameter = key.slot == "param" || key.slot == "master";
      ordered.push_back({{key.phase, key.slot == "clipped", parameter}, &entry});
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& left, const auto& right) { return left.first < right.first; });
    for (const auto& [place, entry] : ordered) {
      const auto& [key, shards] = *entry;
      if (shards.size() < 2) continue;
      const Copies copies = evidence.copies().of(key, shards);
      if (!copies.unknown.empty()) {
        ++outcome.unchecked["which parts the ranks hold is not known: " + copies.unknown];
        continue;
      }
      for (const CopySet& set : copies.sets) look_at_set(evidence, key, set, copies, outcome);
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.places().size() < 2) return;
    ++outcome.unchecked["no two ranks hold the same parameters: all are cut"];
  }

 private:
  static void look_at_set(const Evidence& evidence, const Key& key, const CopySet& set,
                          const Copies& copies, Outcome& outcome) {
    // Two names of one tensor: that they are tied is another check's question.
    std::map<std::string, CopySet> by_name;
    for (const Shard& shard : set) by_name[raw_name_of(*shard.record)].push_back(shard);
    for (const auto& [name, same] : by_name) {
      if (same.size() < 2) continue;
      ++outcome.compared[noun_of(key)];
      const auto conflict = conflict_in(same);
      if (conflict) outcome.report(conflicting(evidence, key, same, *conflict, copies));
    }
  }
};

}  // namespace

std::unique_ptr<Check> make_replicas() { return std::make_unique<Replicas>(); }

}  // namespace ttrace::builtin
