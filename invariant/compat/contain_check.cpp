// SPDX-License-Identifier: Apache-2.0
// See contain.hpp: checks, and examples of a hypothesis that another trace proposed.
#include <algorithm>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/contain.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

// A file has them beside the function's name.
Value stated_arguments(const Values& values, const Param& child) {
  if (child.arguments.kind != Kind::object) return {};
  Value arguments;
  bool named = false;
  for (const Member& member : values.members(child.arguments)) {
    if (values.text(member.name) == "args") arguments = member.value;
    named = named || values.text(member.name) == "func_name";
  }
  if (named) return arguments;
  return child.arguments;
}

bool matches(Context& context, const Call& call, const Param& child) {
  if (call.function != child.api || !call.returned()) return false;
  const Value arguments = stated_arguments(context.trace.values(), child);
  if (arguments.kind != Kind::object) return true;
  const Values& values = context.trace.values();
  const std::vector<Member> have = context.trace.bound(context.trace.at(call.pre), false);
  return std::ranges::all_of(values.members(arguments), [&](const Member& want) {
    const auto found = std::ranges::find(have, want.name, &Member::name);
    return found != have.end() && values.equal(found->value, want.value);
  });
}

// Only the stages where it was found are searched in other traces.
bool in_stages(const Context& context, const Call& call, const std::vector<Value>& stages) {
  const Trace& trace = context.trace;
  const Value here = trace.at(call.pre).field(trace.words.stage);
  return stages.empty() || std::ranges::any_of(stages, [&](Value stage) {
           return trace.values().equal(stage, here);
         });
}

}  // namespace

bool contains(Context& context, const Call& call, const Param& child) {
  View& view = context.view;
  if (child.type == ParamType::api) {
    return std::ranges::any_of(view.calls_in(call),
                               [&](CallId id) { return matches(context, view.calls[id], child); });
  }
  const Values& values = context.trace.values();
  return std::ranges::any_of(view.changes_in(call), [&](const Change* change) {
    const bool named = child.type != ParamType::variable_name || change->variable == child.variable;
    return named && change->type == child.variable_type && change->attribute == child.attribute &&
           admits(values, child.before, change->before) &&
           admits(values, child.after, change->after);
  });
}

void collect_contain(Context& context, Hypothesis& hypothesis) {
  const Function* parent = context.view.find(hypothesis.params[0].api);
  if (parent != nullptr) {
    for (const CallId id : parent->calls) {
      const Call& call = context.view.calls[id];
      if (!in_stages(context, call, hypothesis.stages)) continue;
      context.gatherer.add(context.view.example(call.pre),
                           contains(context, call, hypothesis.params[1]));
    }
  }
  context.gatherer.finish(hypothesis);
}

void check_contain(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.size() != 2) return;
  const Function* parent = context.view.find(invariant.params[0].api);
  if (parent == nullptr) return;
  Applies applies(context, invariant);
  for (const CallId id : parent->calls) {
    const Call& call = context.view.calls[id];
    if (!applies.at(call.pre)) continue;
    trigger(outcome);
    if (!contains(context, call, invariant.params[1])) violate(context, outcome, {call.pre});
  }
}

std::string contain_text(const Values& values, const std::vector<Param>& params) {
  const std::string parent = short_name(values, params[0].api);
  const Param& child = params[1];
  if (child.type == ParamType::api) {
    return parent + "() always calls " + short_name(values, child.api) + "()";
  }
  return parent + "() changes " + variable_text(values, child) + ": " +
         spoken(values, child.before) + " --> " + spoken(values, child.after);
}

}  // namespace ttrace::invariant::compat
