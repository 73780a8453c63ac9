// SPDX-License-Identifier: Apache-2.0
// Tied weights stay equal. The input embedding and the output layer of a model may be one tensor
// that two pipeline stages, or one model twice, hold as two: their gradients must then be added up
// on both sides. Frameworks declare it (both have one name in the trace, and two of their own);
// else an embedding and another trainable parameter that start bit-equal are taken for tied.
#include <algorithm>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/conflict.hpp"

namespace ttrace::builtin {
namespace {

constexpr const char* kAdvice =
    "do both sides add up each other's gradient before the step, and are they the same tensor, or "
    "copied, at the start?";

bool is_embedding(const Evidence& evidence, const std::string& parameter) {
  for (const RankInfo& info : evidence.trace().ranks()) {
    const auto module = info.modules.find(owner_of(parameter));
    if (module == info.modules.end()) continue;
    return module->second.class_name.find("mbedding") != std::string::npos;
  }
  return false;
}

bool tells(const Record* record) {
  return record != nullptr && record->shape.size() > 1 && element_count(record->shape) > 1 &&
         record->kind != RecordKind::hash && record->statistics.min != record->statistics.max;
}

std::string names_in(const CopySet& set) {
  std::string text;
  for (const Shard& shard : set) {
    const std::string& name = raw_name_of(*shard.record);
    if (text.find("`" + name + "`") != std::string::npos) continue;
    text += (text.empty() ? "`" : " and `") + name + "`";
  }
  return text;
}

class Tied final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    if (iteration == evidence.iterations().front()) find_pairs(evidence, iteration);
    for (const auto& [key, shards] : evidence.parameter_shards(iteration)) {
      const Copies copies = evidence.copies().of(key, shards);
      for (const CopySet& set : copies.sets) {
        const bool two = std::any_of(set.begin(), set.end(), [&](const Shard& shard) {
          return raw_name_of(*shard.record) != raw_name_of(*set.front().record);
        });
        if (two) compare(key, set, Certainty::certain, outcome);
      }
    }
    for (const Pair& pair : pairs_) look_at_pair(evidence, iteration, pair, outcome);
  }

  void finish(const Evidence&, Outcome& outcome) override {
    if (outcome.compared.empty()) ++outcome.unchecked["no tied weights are known in this trace"];
  }

 private:
  struct Pair {
    std::int32_t rank, other_rank;
    std::string name, other;
  };

  struct Holder {
    std::int32_t rank;
    std::string name;
  };

  // An embedding, and something else that starts like it.
  void find_pairs(const Evidence& evidence, std::int64_t iteration) {
    std::map<std::pair<Hash128, Shape>, std::vector<Holder>> alike;
    for (const auto& [rank, where] : evidence.places()) {
      for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
        const bool trained = step.value != nullptr && (step.value->flags & kFlagTrainable) != 0;
        if (!trained || !tells(step.value) || step.gradient() == nullptr) continue;
        alike[{step.value->hash, step.value->shape}].push_back({rank, name});
      }
    }
    for (const auto& [content, holders] : alike) {
      for (const Holder& one : holders) {
        if (!is_embedding(evidence, one.name)) continue;
        const auto other = std::find_if(holders.begin(), holders.end(), [&](const Holder& entry) {
          return entry.name != one.name && !is_embedding(evidence, entry.name);
        });
        if (other != holders.end())
          pairs_.push_back({one.rank, other->rank, one.name, other->name});
      }
    }
  }

  static void compare(const Key& key, const CopySet& set, Certainty certainty, Outcome& outcome) {
    ++outcome.compared[key.phase == Phase::grad ? "gradients of tied weights" : "tied weights"];
    const auto conflict = conflict_in(set);
    if (!conflict) return;
    Violation violation;
    violation.certainty = certainty;
    violation.iteration = key.iteration;
    violation.ranks = conflict->odd;
    violation.module = key.module;
    violation.key = to_string(key);
    violation.what =
        names_in(set) + " are tied, and " + to_string(key) + " is not the same: " + conflict->who;
    if (conflict->error) violation.what += ", relative error " + printed(*conflict->error);
    violation.advice = kAdvice;
    outcome.report(std::move(violation));
  }

  static void look_at_pair(const Evidence& evidence, std::int64_t iteration, const Pair& pair,
                           Outcome& outcome) {
    const ParameterSteps& mine = evidence.parameters(pair.rank, iteration);
    const ParameterSteps& theirs = evidence.parameters(pair.other_rank, iteration);
    const auto one = mine.find(pair.name);
    const auto other = theirs.find(pair.other);
    if (one == mine.end() || other == theirs.end()) return;
    const auto both = [&](const Record* left, const Record* right) {
      if (left == nullptr || right == nullptr || left->shape != right->shape) return;
      compare(left->key,
              {{pair.rank, {}, one->second.segment, left},
               {pair.other_rank, {}, other->second.segment, right}},
              Certainty::likely, outcome);
    };
    both(one->second.reduced, other->second.reduced);
    both(one->second.after, other->second.after);
  }

  std::vector<Pair> pairs_;
};

}  // namespace

std::unique_ptr<Check> make_tied() { return std::make_unique<Tied>(); }

}  // namespace ttrace::builtin
