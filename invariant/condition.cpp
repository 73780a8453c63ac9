// SPDX-License-Identifier: Apache-2.0
// Whether a precondition holds; see precondition.hpp.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "invariant/precondition.hpp"
#include "invariant/precondition_table.hpp"

namespace ttrace::invariant {
namespace {

// The manager's arguments when `property` names an active one; `rest` is what follows its name, as
// old files write an argument.
const Active* find_manager(const Values& values, const Situation& situation,
                           std::string_view property, std::string_view& rest) {
  if (!property.starts_with(kManagers)) return nullptr;
  property.remove_prefix(kManagers.size());
  const Active* best = nullptr;
  std::size_t longest = 0;
  for (const Active& active : situation.managers) {
    const std::string_view name = values.text(active.manager);
    if (!property.starts_with(name) || name.size() < longest) continue;
    if (property.size() > name.size() && property[name.size()] != '.') continue;
    best = &active;
    longest = name.size();
    rest = property.substr(std::min(property.size(), name.size() + 1));
  }
  return best;
}

Value member_by_text(const Values& values, Value object, std::string_view name) {
  if (object.kind != Kind::object) return {};
  for (const Member& member : values.members(object)) {
    if (values.text(member.name) == name) return member.value;
  }
  return {};
}

// What the clause asks of one record; absent when there is no answer.
Value answer(const Values& values, const Situation& situation, const Clause& clause) {
  Value found;
  std::string_view rest;
  const std::string_view property = values.text(clause.property);
  if (const Active* active = find_manager(values, situation, property, rest)) {
    found = rest.empty() ? active->arguments : member_by_text(values, active->arguments, rest);
  } else {
    const auto field = std::ranges::find(situation.fields, clause.property, &Field::column);
    if (field != situation.fields.end()) found = field->value;
  }
  if (clause.path.kind == Kind::list) {
    for (const Value step : values.elements(clause.path)) {
      if (step.kind != Kind::string) return {};
      found = member_by_text(values, found, values.text(step));
    }
  }
  return found;
}

bool comparable(Value value) {
  if (value.kind == Kind::real) return !std::isnan(value.real);
  return value.present() && value.kind != Kind::list && value.kind != Kind::object;
}

bool holds(const Values& values, const Situations& situations, const Clause& clause,
           std::span<const SituationId> records) {
  std::vector<Value> answers;
  for (const SituationId id : records) {
    const Value value = answer(values, situations[id], clause);
    const bool fits = clause.type == ClauseType::exist ? value.present() : comparable(value);
    if (!fits) return false;
    answers.push_back(value);
  }
  const auto equal = [&](Value a, Value b) { return values.equal(a, b); };
  const auto as_first = [&](Value value) { return equal(value, answers[0]); };
  switch (clause.type) {
    case ClauseType::constant:
      return !answers.empty() && std::ranges::all_of(answers, as_first) &&
             std::ranges::any_of(clause.values, as_first);
    case ClauseType::consistent:
      return !answers.empty() && std::ranges::all_of(answers, as_first);
    case ClauseType::unequal:
      std::ranges::sort(answers, [&](Value a, Value b) { return values.compare(a, b) < 0; });
      return std::ranges::adjacent_find(answers, equal) == answers.end();
    case ClauseType::exist:
      return true;
  }
  return false;
}

}  // namespace

bool holds(const Values& values, const Situations& situations, const Condition& condition,
           std::span<const SituationId> records) {
  const bool any = std::ranges::any_of(condition.any, [&](const Conjunction& conjunction) {
    return std::ranges::all_of(conjunction, [&](const Clause& clause) {
      return holds(values, situations, clause, records);
    });
  });
  return any != condition.inverted;
}

bool holds(const Values& values, const Situations& situations, const Condition& condition,
           const Example& example) {
  const SituationId records[] = {example.first, example.second};
  return holds(values, situations, condition, std::span(records, example.pair ? 2u : 1u));
}

}  // namespace ttrace::invariant
