// SPDX-License-Identifier: Apache-2.0
// See contain.hpp: checks, and examples of a hypothesis that another trace proposed.
#include <algorithm>

#include "invariant/arguments.hpp"
#include "invariant/change_pattern.hpp"
#include "invariant/compat/applies.hpp"
#include "invariant/compat/contain.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

bool matches(Trace& trace, const Call& call, const Param& child) {
  if (call.function != child.api || !call.returned()) return false;
  const Value arguments = stated_arguments(trace.values(), child);
  if (arguments.kind != Kind::object) return true;
  const Values& values = trace.values();
  const std::vector<Member> have = trace.bound(trace.at(call.pre), false);
  return std::ranges::all_of(values.members(arguments), [&](const Member& want) {
    const auto found = std::ranges::find(have, want.name, &Member::name);
    return found != have.end() && values.equal(found->value, want.value);
  });
}

}  // namespace

bool contains(View& view, const Call& call, const Param& child) {
  if (child.type == ParamType::api) {
    return std::ranges::any_of(
        view.calls_in(call), [&](CallId id) { return matches(view.trace, view.calls[id], child); });
  }
  const Values& values = view.trace.values();
  return std::ranges::any_of(view.changes_in(call), [&](const Change* change) {
    const bool named = child.type != ParamType::variable_name || change->variable == child.variable;
    return named && change->type == child.variable_type && change->attribute == child.attribute &&
           admits(values, child.before, change->before) &&
           admits(values, child.after, change->after);
  });
}

// Only the stages where it was found are searched, each as a trace of its own.
void collect_contain(Context& context, Hypothesis& hypothesis) {
  const std::vector<View*>& views = context.by_stage();
  const std::vector<Value>& stages = context.trace.stages;
  const Values& values = context.trace.values();
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto here = [&](Value stage) { return values.equal(stage, stages[i]); };
    if (!stages.empty() && std::ranges::none_of(hypothesis.stages, here)) continue;
    const Function* parent = views[i]->find(hypothesis.params[0].api);
    if (parent == nullptr) continue;
    if (hypothesis.params[1].type != ParamType::api && !context.trace.tracked) continue;
    for (const CallId id : parent->calls) {
      const Call& call = views[i]->calls[id];
      context.gatherer.add(context.view.example(call.pre),
                           contains(*views[i], call, hypothesis.params[1]));
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
    if (!contains(context.view, call, invariant.params[1])) violate(context, outcome, {call.pre});
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
