// SPDX-License-Identifier: Apache-2.0
// "A result stays below an argument called max, above one called min": ThresholdRelation.
#include "invariant/compat/threshold.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/tensors.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr double kMargin = 0.2;  // of the threshold: values that are further away suggest nothing

std::string_view type_text(Value value) {
  if (value.kind == Kind::boolean) return "<class 'bool'>";
  return value.kind == Kind::integer ? "<class 'int'>" : "<class 'float'>";
}

struct Limit {
  Name argument = 0;
  std::string_view type;
  bool lower = false;
  Place place;
  bool operator==(const Limit&) const = default;
};

// The payload of a typed argument by name; absent when the call has none.
Value argument_of(const Values& values, const std::vector<Member>& bound, Name name) {
  const auto found = std::ranges::find(bound, name, &Member::name);
  if (found == bound.end() || found->value.kind != Kind::object) return {};
  const auto members = values.members(found->value);
  return members.empty() ? Value{} : members[0].value;
}

std::vector<Limit> limits_of(Context& context, const std::vector<Member>& bound,
                             const std::vector<Value>& tensors) {
  const Values& values = context.trace.values();
  std::vector<Limit> out;
  for (const Member& member : bound) {
    const std::string_view name = values.text(member.name);
    const Value threshold = argument_of(values, bound, member.name);
    if (!threshold.number()) continue;
    for (const bool lower : {true, false}) {
      if (name.find(lower ? "min" : "max") == std::string_view::npos) continue;
      const double limit = as_double(threshold);
      for (const Found& found : places_in(context.trace, tensors, true)) {
        if (!found.value.number()) continue;
        const double value = as_double(found.value);
        if (!(lower ? value >= limit : value <= limit)) continue;
        if (limit == 0) {  // TrainCheck divides by it
          ++context.trace.tolerated.other;
        } else if (std::abs(value - limit) / limit <= kMargin) {
          out.push_back({member.name, type_text(threshold), lower, found.place});
        }
      }
    }
  }
  return out;
}

std::vector<Param> params_of(Values& values, Name function, const Limit& limit) {
  Param argument;
  argument.type = ParamType::input_output;
  argument.api = function;
  argument.name = limit.argument;
  argument.index = none();
  argument.value_type = values.name(limit.type);
  argument.path = none();
  argument.is_input = true;
  Param place = place_param(values, function, limit.place, false);
  if (limit.lower) return {place, api_param(function), argument};
  return {argument, api_param(function), place};
}

// One call's larger and smaller value by the parameters; absent where it has none.
Value side(Context& context, const Call& call, const Param& param) {
  Trace& trace = context.trace;
  if (param.is_input) {
    return argument_of(trace.values(), trace.bound(trace.at(call.pre), true), param.name);
  }
  const std::optional<Place> place = place_of(trace.values(), param);
  if (!place) return {};
  return value_at(trace.values(), output_tensors(trace, trace.at(call.post)), *place);
}

}  // namespace

void infer_threshold(Context& context, const Sink& sink) {
  Trace& trace = context.trace;
  for (const Function& function : context.view.functions) {
    if (trace.skipped(function.name)) continue;
    std::vector<Limit> limits;
    for (const CallId id : function.calls) {
      const Call& call = context.view.calls[id];
      if (!call.returned()) continue;
      const auto tensors = output_tensors(trace, trace.at(call.post));
      if (tensors.empty()) continue;
      const auto bound = trace.bound(trace.at(call.pre), true);
      for (const Limit& limit : limits_of(context, bound, tensors)) {
        if (std::ranges::find(limits, limit) == limits.end()) limits.push_back(limit);
      }
    }
    for (const Limit& limit : limits) {
      Hypothesis out;
      out.params = params_of(trace.values(), function.name, limit);
      collect_threshold(context, out);
      sink(std::move(out));
    }
  }
}

void collect_threshold(Context& context, Hypothesis& hypothesis) {
  const Function* function = context.view.find(hypothesis.params[1].api);
  if (function == nullptr) return;
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned()) continue;
    const Value large = side(context, call, hypothesis.params[0]);
    const Value small = side(context, call, hypothesis.params[2]);
    if (!large.number() || !small.number()) continue;
    context.gatherer.add(context.view.example(call.pre), as_double(large) >= as_double(small));
  }
  context.gatherer.finish(hypothesis);
}

void check_threshold(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.size() != 3) return;
  const Function* function = context.view.find(invariant.params[1].api);
  if (function == nullptr) return;
  Applies applies(context, invariant);
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned() || !applies.at(call.pre)) continue;
    const Value large = side(context, call, invariant.params[0]);
    const Value small = side(context, call, invariant.params[2]);
    if (!large.number() || !small.number()) {
      ++context.trace.tolerated.other;
      continue;
    }
    trigger(outcome);
    if (!(as_double(large) >= as_double(small))) violate(context, outcome, {call.pre, call.post});
  }
}

std::string threshold_text(const Values& values, const std::vector<Param>& params) {
  const bool lower = params[2].is_input;
  return short_name(values, params[1].api) + "(): " + place_text(values, params[lower ? 0 : 2]) +
         (lower ? " \u2265 " : " \u2264 ") + place_text(values, params[lower ? 2 : 0]);
}

}  // namespace ttrace::invariant::compat
