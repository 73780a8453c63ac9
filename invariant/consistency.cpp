// SPDX-License-Identifier: Apache-2.0
// Consistency: two variables agree in an attribute. Two kinds of pairs:
// - One variable on two processes, with its content. Compared are states of one step that were
//   recorded at the same place in the program (mode, function, the how-manieth time), never of one
//   wall-clock time: processes drift.
// - Neighbours of one type in a process, in the order of names, as they are at the end of a step;
//   not their content. Chains of neighbours are enough, because equality is transitive, and they
//   keep the work linear.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

using Attribute = std::pair<Name, Name>;  // type, attribute

// Up to so many processes each is compared with each; of more, those whose numbers in order differ
// by a power of two: in a mesh that reaches every rank of every axis.
constexpr std::size_t kAllPairs = 8;

struct Observation {
  SituationId situation = 0;
  Place place;
  std::vector<Field> attributes;
};

class ConsistencyProposer : public Proposer {
 public:
  ConsistencyProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void state(const State& state) override {
    for (const Field& field : state.attributes) {
      const auto [entry, added] = of_interest_.try_emplace(field.column, false);
      if (added) entry->second = is_of_interest(world_.values.text(field.column));
      if (entry->second) attributes_.insert({state.record->variable_type, field.column});
    }
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    std::vector<Invariant> result;
    for (const auto& [type, attribute] : attributes_) {
      Invariant invariant;
      invariant.relation = relation_;
      Param param;
      param.type = ParamType::variable_type;
      param.variable_type = type;
      param.attribute = attribute;
      invariant.params = {param, param};
      result.push_back(std::move(invariant));
    }
    return result;
  }

 private:
  World& world_;
  Name relation_;
  std::set<Attribute> attributes_;
  std::unordered_map<Name, bool> of_interest_;
};

class ConsistencyEvaluator : public Listener {
 public:
  ConsistencyEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      const auto& params = hypotheses[i]->params;
      if (params.size() != 2 || params[0].variable_type != params[1].variable_type ||
          params[0].attribute != params[1].attribute) {
        continue;
      }
      watched_[{params[0].variable_type, params[0].attribute}] = i;
      types_.insert(params[0].variable_type);
    }
  }

  void state(const State& state) override {
    if (!types_.contains(state.record->variable_type)) return;
    Moment moment;
    moment.type = state.record->variable_type;
    for (const Field& field : state.record->fields) {
      const Column column = world_.columns.of(field.column);
      if (column == Column::mode) moment.mode = field.value.ref;
      if (column == Column::location) moment.location = field.value.ref;
    }
    moment.time = times_[{state.variable, moment.mode, moment.location}]++;
    Observation observation;
    observation.situation = state.situation;
    observation.place = state.place;
    observation.attributes.assign(state.attributes.begin(), state.attributes.end());
    touched_.insert({state.place.process, moment.type});
    Latest& latest = latest_[{state.place.process, moment.type}];
    latest[world_.values.text(state.record->variable)] = {observation, true};
    step_[moment][state.record->variable].push_back(std::move(observation));
  }

  void end_of_step(std::int64_t /*step*/) override {
    for (const auto& [moment, seen] : step_) compare_processes(moment.type, seen);
    for (const auto& key : touched_) compare_neighbours(key.second, latest_[key]);
    step_.clear();
    touched_.clear();
    times_.clear();
  }

 private:
  struct Moment {
    Name type = 0, mode = 0, location = 0;
    std::uint32_t time = 0;
    friend auto operator<=>(const Moment&, const Moment&) = default;
  };
  using Seen = std::map<Name, std::vector<Observation>>;  // of a variable, by process
  struct Current {
    Observation observation;
    bool fresh = false;  // since the last comparison
  };
  using Latest = std::map<std::string_view, Current>;  // in the order of names

  void compare_neighbours(Name type, Latest& latest) {
    Current* before = nullptr;
    bool fresh = false;
    for (auto& [name, current] : latest) {
      const bool now = current.fresh;
      if (before != nullptr && (fresh || now)) {
        compare(type, before->observation, current.observation, false);
      }
      before = &current;
      fresh = std::exchange(current.fresh, false);
    }
  }

  void compare_processes(Name type, const Seen& seen) {
    for (const auto& [variable, observations] : seen) {
      const std::size_t count = observations.size();
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t other = 1; i + other < count;
             other = count <= kAllPairs ? other + 1 : other * 2) {
          compare(type, observations[i], observations[i + other], true);
        }
      }
    }
  }

  void compare(Name type, const Observation& a, const Observation& b, bool content) {
    for (std::size_t i = 0; i < a.attributes.size(); ++i) {
      const Field& one = a.attributes[i];
      const auto watched = watched_.find({type, one.column});
      if (watched == watched_.end() || (!content && is_content(world_.values.text(one.column))))
        continue;
      const Value other = value_of(b, one.column, i);
      if (!other.present() || !one.value.present()) continue;
      const bool held = world_.values.equal(one.value, other);
      const Example example{a.situation, b.situation, true};
      if (!sink_.example(watched->second, example, held)) continue;
      Evidence evidence;
      evidence.place = a.place;
      evidence.other = b.place;
      evidence.pair = true;
      evidence.found = printed(world_.values, one.value) + " and " + printed(world_.values, other);
      sink_.report(watched->second, std::move(evidence));
    }
  }

  // At the same position, mostly.
  [[nodiscard]] static Value value_of(const Observation& observation, Name attribute,
                                      std::size_t position) {
    const auto& attributes = observation.attributes;
    if (position < attributes.size() && attributes[position].column == attribute) {
      return attributes[position].value;
    }
    const auto entry = std::ranges::find(attributes, attribute, &Field::column);
    return entry == attributes.end() ? Value{} : entry->value;
  }

  World& world_;
  Sink& sink_;
  std::map<Attribute, std::size_t> watched_;
  std::set<Name> types_;
  std::map<Moment, Seen> step_;
  std::map<std::pair<std::int64_t, Name>, Latest> latest_;                // (process, type)
  std::set<std::pair<std::int64_t, Name>> touched_;                       // in this step
  std::map<std::tuple<std::uint32_t, Name, Name>, std::uint32_t> times_;  // within the step
};

class Consistency : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "ConsistencyRelation"; }
  [[nodiscard]] std::string_view group() const override { return "var"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const auto text = [&](const Param& param) {
      return short_name(values.text(param.variable_type)) + "." +
             std::string(values.text(param.attribute));
    };
    return text(invariant.params[0]) + " is the same in both variables";
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look at what sets " + std::string(values.text(invariant.params[0].attribute)) +
           " of the two variables: a missing synchronisation, or a setting that reached only one";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<ConsistencyProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<ConsistencyEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> consistency_relation() { return std::make_unique<Consistency>(); }

}  // namespace ttrace::invariant
