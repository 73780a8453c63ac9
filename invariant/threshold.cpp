// SPDX-License-Identifier: Apache-2.0
// Threshold: a computed number stays within an argument that bounds it: the norm that
// clip_grad_norm_ leaves is at most max_norm. Bounds are arguments with "min" or "max" in their
// name; a hypothesis is made where a result came close to its bound. Structure (flags, shapes,
// sizes) is no result.
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "invariant/arguments.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

constexpr double kClose = 0.2;  // of the larger of the two, so that zero is a bound, too

// A number among the results: of the i-th tensor an attribute, or the i-th result itself.
struct Output {
  std::size_t index = 0;
  Name attribute = 0;
  bool tensor = false;
  friend auto operator<=>(const Output&, const Output&) = default;
};

struct Bound {
  Name argument = 0;
  Output output;
  bool upper = false;
  friend auto operator<=>(const Bound&, const Bound&) = default;
};

bool is_result(std::string_view attribute) {
  for (const std::string_view name : {"value", "norm", "data", "min", "max", "mean", "std"}) {
    if (attribute == name) return true;
  }
  return attribute.starts_with("data.");
}

bool is_number(Value value) { return value.kind == Kind::integer || value.kind == Kind::real; }

std::map<Output, double> outputs_of(const Values& values, const Call& call) {
  std::map<Output, double> outputs;
  std::vector<Value> results;
  if (call.returns.kind == Kind::list) {
    const auto elements = values.elements(call.returns);
    results.assign(elements.begin(), elements.end());
  } else {
    results.push_back(call.returns);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Typed entry = typed(values, results[i]);
    if (is_number(entry.payload)) outputs[{i, 0, false}] = as_double(entry.payload);
    if (entry.payload.kind != Kind::object || !is_tensor_type(values.text(entry.type))) continue;
    for (const Member& member : values.members(entry.payload)) {
      if (is_number(member.value) && member.value.kind == Kind::real &&
          is_result(values.text(member.name))) {
        outputs[{i, member.name, true}] = as_double(member.value);
      }
    }
  }
  return outputs;
}

struct Limit {
  Name argument = 0;
  bool upper = false;
  double value = 0;
};

std::vector<Limit> limits_of(World& world, const Call& call) {
  std::vector<Limit> limits;
  const Value bound = arguments_with_defaults(world, call.function, call.args, call.kwargs);
  for (const Member& member : world.values.members(bound)) {
    const Typed entry = typed(world.values, member.value);
    if (!is_number(entry.payload)) continue;
    const std::string_view name = world.values.text(member.name);
    const bool upper = name.find("max") != std::string_view::npos;
    if (!upper && name.find("min") == std::string_view::npos) continue;
    limits.push_back({member.name, upper, as_double(entry.payload)});
  }
  return limits;
}

bool within(double output, double limit, bool upper) {
  return upper ? output <= limit : output >= limit;
}

bool close(double output, double limit) {
  return std::abs(output - limit) <= kClose * std::max(std::abs(output), std::abs(limit));
}

class ThresholdProposer : public Proposer {
 public:
  ThresholdProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised) return;
    const auto [entry, added] = bounded_.try_emplace(call.function, true);
    if (!entry->second) return;
    const std::vector<Limit> limits = limits_of(world_, call);
    if (added) entry->second = !limits.empty();
    if (limits.empty()) return;
    for (const auto& [output, value] : outputs_of(world_.values, call)) {
      for (const Limit& limit : limits) {
        if (!within(value, limit.value, limit.upper) || !close(value, limit.value)) continue;
        found_[call.function].insert({limit.argument, output, limit.upper});
      }
    }
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    std::vector<Invariant> result;
    for (const auto& [function, bounds] : found_) {
      for (const Bound& bound : bounds) {
        const Param limit = limit_param(function, bound);
        const Param output = output_param(function, bound.output);
        Param api;
        api.api = function;
        Invariant invariant;
        invariant.relation = relation_;
        invariant.params = {bound.upper ? limit : output, api, bound.upper ? output : limit};
        result.push_back(std::move(invariant));
      }
    }
    return result;
  }

 private:
  Param limit_param(Name function, const Bound& bound) {
    Param param;
    param.type = ParamType::input_output;
    param.name = bound.argument;
    param.index = none();
    param.value_type = world_.name("<class 'float'>");
    param.path = none();
    param.api = function;
    param.is_input = true;
    return param;
  }

  Param output_param(Name function, const Output& output) {
    Param param;
    param.type = ParamType::input_output;
    param.name = world_.name(output.tensor ? "output_tensors" : "return_values");
    param.index = integer(static_cast<std::int64_t>(output.index));
    param.value_type = world_.name(output.tensor ? "torch.Tensor" : "<class 'float'>");
    param.path = none();
    if (output.tensor) {
      const Value step{Kind::string, {.ref = output.attribute}};
      param.path = world_.values.list({&step, 1});
    }
    param.api = function;
    return param;
  }

  World& world_;
  Name relation_;
  std::unordered_map<Name, bool> bounded_;  // whether a function has bounds
  std::map<Name, std::set<Bound>> found_;
};

// False for one of another form.
bool read_bound(const Values& values, const Invariant& invariant, Bound& bound) {
  if (invariant.params.size() != 3) return false;
  bound.upper = invariant.params[0].is_input;
  const Param& limit = invariant.params[bound.upper ? 0 : 2];
  const Param& output = invariant.params[bound.upper ? 2 : 0];
  if (!limit.is_input || output.is_input || output.index.kind != Kind::integer) return false;
  bound.argument = limit.name;
  bound.output.index = static_cast<std::size_t>(output.index.integer);
  bound.output.tensor = output.path.kind == Kind::list;
  if (!bound.output.tensor) return true;
  const auto steps = values.elements(output.path);
  if (steps.size() != 1 || steps[0].kind != Kind::string) return false;
  bound.output.attribute = steps[0].ref;
  return true;
}

class ThresholdEvaluator : public Listener {
 public:
  ThresholdEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      Bound bound;
      if (!read_bound(world.values, *hypotheses[i], bound)) continue;
      functions_[hypotheses[i]->params[1].api].push_back({i, bound});
    }
  }

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised) return;
    const auto entry = functions_.find(call.function);
    if (entry == functions_.end()) return;
    const auto outputs = outputs_of(world_.values, call);
    for (const auto& [hypothesis, bound] : entry->second) {
      for (const Limit& limit : limits_of(world_, call)) {
        const auto output = outputs.find(bound.output);
        if (limit.argument != bound.argument || output == outputs.end()) continue;
        const bool held = within(output->second, limit.value, bound.upper);
        if (!sink_.example(hypothesis, {call.situation, 0, false}, held)) continue;
        Evidence evidence;
        evidence.place = call.place;
        evidence.found = printed(world_.values, real(output->second)) + " against " +
                         printed(world_.values, real(limit.value));
        sink_.report(hypothesis, std::move(evidence));
      }
    }
  }

 private:
  World& world_;
  Sink& sink_;
  std::unordered_map<Name, std::vector<std::pair<std::size_t, Bound>>> functions_;
};

class Threshold : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "ThresholdRelation"; }
  [[nodiscard]] std::string_view group() const override { return "pre_event"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    Bound bound;
    if (!read_bound(values, invariant, bound)) return "a bound of another form";
    std::string output = "output[" + std::to_string(bound.output.index) + "]";
    if (bound.output.tensor) output += "." + std::string(values.text(bound.output.attribute));
    return short_name(values.text(invariant.params[1].api)) + "(): " + output +
           (bound.upper ? " \u2264 " : " \u2265 ") + std::string(values.text(bound.argument));
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look at how " + short_name(values.text(invariant.params[1].api)) +
           " applies its bound, and at whether it is given the right one";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<ThresholdProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<ThresholdEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> threshold_relation() { return std::make_unique<Threshold>(); }

}  // namespace ttrace::invariant
