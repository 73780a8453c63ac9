// SPDX-License-Identifier: Apache-2.0
// ConsistentOutput: every tensor that a function returns has a certain attribute, such as a dtype.
// A tensor without the attribute is a miss like any other; a call that returns no tensor, too.
#include <map>
#include <set>
#include <unordered_map>

#include "invariant/arguments.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::size_t kValues = 8;  // of an attribute; with more of them it is no constant

constexpr std::int64_t kExtent = 1 << 20;

// Lists are shapes.
bool may_be_constant(const Values& values, Value value) {
  if (value.kind != Kind::list) return looks_configured(values, value);
  for (const Value element : values.elements(value)) {
    if (element.kind != Kind::integer || element.integer >= kExtent) return false;
  }
  return true;
}

class OutputProposer : public Proposer {
 public:
  OutputProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void begin_trace(std::size_t trace) override { trace_ = trace; }

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised) return;
    const std::vector<Value> tensors = output_tensors(world_.values, call);
    if (tensors.empty()) return;
    if (skipped(call.function)) return;
    auto& attributes = functions_[call.function];
    for (const Value tensor : tensors) {
      for (const Member& member : world_.values.members(tensor)) {
        if (skipped_attribute(member.name)) continue;
        note(attributes[member.name], member.value);
      }
    }
  }

  std::vector<Invariant> proposals(std::size_t traces) override {
    std::vector<Invariant> result;
    const Name tensor = world_.name("torch.Tensor");
    for (const auto& [function, attributes] : functions_) {
      for (const auto& [attribute, seen] : attributes) {
        if (seen.size() > kValues) continue;
        for (const Seen& entry : seen) {
          const bool one_run = traces > 1 && entry.traces.size() < 2;
          if (one_run && !is_enum_like(world_.values, entry.value)) continue;
          if (!may_be_constant(world_.values, entry.value)) continue;
          Invariant invariant;
          invariant.relation = relation_;
          invariant.params.resize(2);
          invariant.params[0].api = function;
          invariant.params[1].type = ParamType::variable_type;
          invariant.params[1].variable_type = tensor;
          invariant.params[1].attribute = attribute;
          invariant.params[1].constant = entry.value;
          result.push_back(std::move(invariant));
        }
      }
    }
    return result;
  }

 private:
  struct Seen {
    Value value;
    std::set<std::size_t> traces;
  };

  bool skipped(Name function) {
    const auto [entry, added] = skipped_.try_emplace(function, false);
    if (added) entry->second = ignored("ConsistentOutputRelation", world_.values.text(function));
    return entry->second;
  }

  bool skipped_attribute(Name attribute) {
    const auto [entry, added] = skipped_attributes_.try_emplace(attribute, false);
    if (added) {
      const std::string_view name = world_.values.text(attribute);
      entry->second = is_content(name) || !is_of_interest(name);
    }
    return entry->second;
  }

  void note(std::vector<Seen>& seen, Value value) {
    for (Seen& entry : seen) {
      if (!world_.values.equal(entry.value, value)) continue;
      entry.traces.insert(trace_);
      return;
    }
    if (seen.size() <= kValues) seen.push_back({value, {trace_}});
  }

  World& world_;
  Name relation_;
  std::size_t trace_ = 0;
  std::map<Name, std::map<Name, std::vector<Seen>>> functions_;
  std::unordered_map<Name, bool> skipped_, skipped_attributes_;
};

class OutputEvaluator : public Listener {
 public:
  OutputEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      const auto& params = hypotheses[i]->params;
      if (params.size() != 2 || !params[1].constant.present()) continue;
      functions_[params[0].api].push_back({i, params[1].attribute, params[1].constant});
    }
  }

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised) return;
    const auto entry = functions_.find(call.function);
    if (entry == functions_.end()) return;
    const std::vector<Value> tensors = output_tensors(world_.values, call);
    const Example example{call.situation, 0, false};
    for (const Wanted& wanted : entry->second) {
      Value other;
      const bool held = all_have(tensors, wanted, other);
      if (!sink_.example(wanted.hypothesis, example, held)) continue;
      Evidence evidence;
      evidence.place = call.place;
      evidence.found = tensors.empty()
                           ? "returned no tensor"
                           : "returned " + std::string(world_.values.text(wanted.attribute)) + "=" +
                                 printed(world_.values, other);
      sink_.report(wanted.hypothesis, std::move(evidence));
    }
  }

 private:
  struct Wanted {
    std::size_t hypothesis;
    Name attribute;
    Value value;
  };

  bool all_have(const std::vector<Value>& tensors, const Wanted& wanted, Value& other) const {
    for (const Value tensor : tensors) {
      other = world_.values.member(tensor, wanted.attribute);
      if (!world_.values.equal(other, wanted.value)) return false;
    }
    return !tensors.empty();
  }

  World& world_;
  Sink& sink_;
  std::unordered_map<Name, std::vector<Wanted>> functions_;
};

class ConsistentOutput : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "ConsistentOutputRelation"; }
  [[nodiscard]] std::string_view group() const override { return "pre_event"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const Param& output = invariant.params[1];
    return short_name(values.text(invariant.params[0].api)) +
           "() consistently returns tensors with " + std::string(values.text(output.attribute)) +
           "=" + printed(values, output.constant);
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look at the inputs and at the settings in force (autocast, training mode, frozen "
           "parameters) where " +
           short_name(values.text(invariant.params[0].api)) + " is called";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<OutputProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<OutputEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> consistent_output_relation() {
  return std::make_unique<ConsistentOutput>();
}

}  // namespace ttrace::invariant
