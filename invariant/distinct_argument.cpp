// SPDX-License-Identifier: Apache-2.0
// DistinctArgument: calls of a function within one step get different arguments: seeds of loader
// workers, keys of random numbers. Arguments are compared exactly; calls with tensors whose content
// was not recorded cannot be told apart and do not count.
#include <map>
#include <unordered_map>

#include "invariant/arguments.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

// Of a step; pairs of more kinds of calls would show no more.
constexpr std::size_t kKinds = 64;

bool has_content(const Values& values, Value tensor) {
  for (const Member& member : values.members(tensor)) {
    const std::string_view name = values.text(member.name);
    if (name == "data" || name == "hash" || name.starts_with("data.")) return true;
  }
  return false;
}

// Absent when the call says too little.
Value arguments_of(World& world, const Call& call) {
  const Value bound = bound_arguments(world, call.function, call.args, call.kwargs);
  bool any = false;
  for (const Member& member : world.values.members(bound)) {
    const Typed entry = typed(world.values, member.value);
    const std::string_view type = world.values.text(entry.type);
    if (!entry.payload.present()) continue;
    if (is_tensor_type(type)) {
      if (entry.payload.kind != Kind::object || !has_content(world.values, entry.payload))
        return {};
    }
    any = any || world.values.text(member.name) != "self";
  }
  return any ? bound : Value{};
}

class DistinctProposer : public Proposer {
 public:
  DistinctProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void enter(const Call& call, std::size_t /*index*/) override {
    const auto [entry, added] = functions_.try_emplace(call.function, false);
    if (added)
      entry->second = !ignored("DistinctArgumentRelation", world_.values.text(call.function));
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    std::vector<Invariant> result;
    for (const auto& [function, proposed] : functions_) {
      if (!proposed) continue;
      Invariant invariant;
      invariant.relation = relation_;
      invariant.params.resize(1);
      invariant.params[0].api = function;
      result.push_back(std::move(invariant));
    }
    return result;
  }

 private:
  World& world_;
  Name relation_;
  std::map<Name, bool> functions_;
};

class DistinctEvaluator : public Listener {
 public:
  DistinctEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world),
        sink_(sink),
        process_id_(world.name("process_id")),
        thread_id_(world.name("thread_id")) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      if (hypotheses[i]->params.size() == 1) functions_[hypotheses[i]->params[0].api] = i;
    }
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    const auto entry = functions_.find(call.function);
    if (entry == functions_.end()) return;
    const Value arguments = arguments_of(world_, call);
    if (!arguments.present()) return;
    auto& kinds = step_[entry->second];
    const SituationId situation = situation_of(call);
    for (Alike& kind : kinds) {
      if (kind.situation != situation || !world_.values.equal(kind.arguments, arguments)) continue;
      if (kind.count++ == 1) kind.second = call.place;
      return;
    }
    if (kinds.size() < kKinds) kinds.push_back({situation, arguments, 1, call.place, {}});
  }

  void end_of_step(std::int64_t /*step*/) override {
    for (const auto& [hypothesis, kinds] : step_) {
      for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i].count > 1) tell(hypothesis, kinds[i], kinds[i], kinds[i].second, false);
        for (std::size_t j = i + 1; j < kinds.size(); ++j) {
          const bool held = !world_.values.equal(kinds[i].arguments, kinds[j].arguments);
          tell(hypothesis, kinds[i], kinds[j], kinds[j].first, held);
        }
      }
    }
    step_.clear();
  }

 private:
  // Calls of one situation with the same arguments.
  struct Alike {
    SituationId situation;
    Value arguments;
    std::uint64_t count;
    Place first, second;
  };

  // A pair's clauses may ask whether it is of one process.
  SituationId situation_of(const Call& call) {
    const auto [entry, added] = situations_.try_emplace({call.situation, call.thread}, 0);
    if (added) {
      Situation situation = world_.situations[call.situation];
      situation.fields.push_back({process_id_, integer(call.place.process)});
      situation.fields.push_back({thread_id_, integer(call.place.thread)});
      entry->second = world_.situations.add(std::move(situation));
    }
    return entry->second;
  }

  void tell(std::size_t hypothesis, const Alike& a, const Alike& b, const Place& other, bool held) {
    if (!sink_.example(hypothesis, {a.situation, b.situation, true}, held)) return;
    Evidence evidence;
    evidence.place = a.first;
    evidence.other = other;
    evidence.pair = true;
    evidence.found = "same arguments:";
    for (const Member& member : world_.values.members(a.arguments)) {
      const Typed entry = typed(world_.values, member.value);
      evidence.found += " " + std::string(world_.values.text(member.name)) + "=" +
                        printed(world_.values, entry.payload);
    }
    sink_.report(hypothesis, std::move(evidence));
  }

  World& world_;
  Sink& sink_;
  Name process_id_, thread_id_;
  std::unordered_map<Name, std::size_t> functions_;
  std::map<std::size_t, std::vector<Alike>> step_;  // by hypothesis
  std::map<std::pair<SituationId, std::uint32_t>, SituationId> situations_;
};

class DistinctArgument : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "DistinctArgumentRelation"; }
  [[nodiscard]] std::string_view group() const override { return "distinct_arg"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    return short_name(values.text(invariant.params[0].api)) +
           "() receives distinct arguments at each step";
  }

  [[nodiscard]] std::string cases(const Values& values, const Invariant& invariant) const override {
    return "pairs of calls of " + short_name(values.text(invariant.params[0].api)) + "()";
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look at where the arguments of " + short_name(values.text(invariant.params[0].api)) +
           " come from: two workers, ranks or layers share them";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<DistinctProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<DistinctEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> distinct_argument_relation() {
  return std::make_unique<DistinctArgument>();
}

}  // namespace ttrace::invariant
