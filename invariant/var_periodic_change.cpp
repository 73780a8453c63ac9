// SPDX-License-Identifier: Apache-2.0
// VarPeriodicChange: an attribute of a variable changes every k steps: parameters are updated,
// gradients are new. TrainCheck has the relation but never uses it. The period k is written as
// const_value.
#include <map>
#include <unordered_map>

#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::int64_t kLongest = 64;  // steps

using Attribute = std::pair<Name, Name>;  // type, attribute

// Of one variable's attribute: when it changed.
struct Changes {
  std::int64_t last = kNoStep;  // step of the last change, or of the first state
  bool changed = false;         // ever
  bool overdue = false;         // told already
  SituationId situation = 0;    // of the last state
  Place place;
};

// Steps in which no state of a variable was recorded say nothing about it, so that what is judged
// is the steps with one.
class PeriodProposer : public Proposer {
 public:
  PeriodProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void begin_trace(std::size_t /*trace*/) override { last_.clear(); }

  void state(const State& state) override {
    for (const Change& change : state.changes) {
      if (is_identity(world_.values.text(change.attribute))) continue;
      std::int64_t& last =
          last_.try_emplace({state.variable, change.attribute}, kNoStep).first->second;
      const std::int64_t step = state.place.step;
      if (last != kNoStep && step > last && step - last <= kLongest) {
        ++periods_[{state.record->variable_type, change.attribute}][step - last];
      }
      last = step;
    }
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    std::vector<Invariant> result;
    for (const auto& [attribute, counts] : periods_) {
      std::int64_t most = 0;
      for (const auto& [period, count] : counts) {
        if (most == 0 || count > counts.at(most)) most = period;
      }
      Invariant invariant;
      invariant.relation = relation_;
      invariant.params.resize(1);
      invariant.params[0].type = ParamType::variable_type;
      invariant.params[0].variable_type = attribute.first;
      invariant.params[0].attribute = attribute.second;
      invariant.params[0].constant = integer(most);
      result.push_back(std::move(invariant));
    }
    return result;
  }

 private:
  World& world_;
  Name relation_;
  std::map<std::pair<std::uint32_t, Name>, std::int64_t> last_;
  std::map<Attribute, std::map<std::int64_t, std::uint64_t>> periods_;
};

class PeriodEvaluator : public Listener {
 public:
  PeriodEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      const auto& params = hypotheses[i]->params;
      if (params.size() != 1 || params[0].constant.kind != Kind::integer) continue;
      watched_[{params[0].variable_type, params[0].attribute}] = {i, params[0].constant.integer};
    }
  }

  void state(const State& state) override {
    for (const Field& field : state.attributes) {
      const auto watched = watched_.find({state.record->variable_type, field.column});
      if (watched == watched_.end()) continue;
      Changes& changes = variables_[{state.variable, field.column}];
      note(state, field.column, watched->second, changes);
    }
  }

 private:
  struct Watched {
    std::size_t hypothesis;
    std::int64_t period;
  };

  void note(const State& state, Name attribute, const Watched& watched, Changes& changes) {
    const std::int64_t step = state.place.step;
    bool changed = false;
    for (const Change& change : state.changes) changed = changed || change.attribute == attribute;
    if (changes.last == kNoStep) {
      changes.last = step;  // the first state: from here on
    } else if (changed && step > changes.last) {
      // The first change may come at any time: what it is counted from did not begin with one.
      const bool held = step - changes.last == watched.period;
      if (changes.changed && !changes.overdue) tell(state, watched, held, step - changes.last);
      changes.last = step;
      changes.changed = true;
      changes.overdue = false;
    } else if (!changed && !changes.overdue && step > changes.last + watched.period) {
      changes.overdue = true;
      tell(state, watched, false, step - changes.last);
    }
  }

  void tell(const State& state, const Watched& watched, bool held, std::int64_t steps) {
    if (!sink_.example(watched.hypothesis, {state.situation, 0, false}, held)) return;
    Evidence evidence;
    evidence.place = state.place;
    evidence.found = held ? "" : "no change for " + std::to_string(steps) + " steps";
    if (steps < watched.period)
      evidence.found = "changed after " + std::to_string(steps) + " steps";
    sink_.report(watched.hypothesis, std::move(evidence));
  }

  World& world_;
  Sink& sink_;
  std::map<Attribute, Watched> watched_;
  std::map<std::pair<std::uint32_t, Name>, Changes> variables_;
};

class VarPeriodicChange : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "VarPeriodicChangeRelation"; }
  [[nodiscard]] std::string_view group() const override { return "var"; }
  [[nodiscard]] std::vector<std::string_view> skip() const override {
    return {"var_name", "process_id"};
  }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const Param& variable = invariant.params[0];
    const std::string period = printed(values, variable.constant);
    return short_name(values.text(variable.variable_type)) + "." +
           std::string(values.text(variable.attribute)) + " changes every " +
           (period == "1" ? "step" : period + " steps");
  }

  [[nodiscard]] std::string advice(const Values& /*values*/,
                                   const Invariant& /*invariant*/) const override {
    return "look at whether the variable still belongs to the model that is trained, is trainable "
           "and is known to the optimizer";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<PeriodProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<PeriodEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> var_periodic_change_relation() {
  return std::make_unique<VarPeriodicChange>();
}

}  // namespace ttrace::invariant
