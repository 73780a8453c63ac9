// SPDX-License-Identifier: Apache-2.0
// See applies.hpp.
#include "invariant/compat/applies.hpp"

#include <algorithm>

namespace ttrace::invariant::compat {

Applies::Applies(Context& context, const Invariant& invariant) : context_(context) {
  const std::string_view relation = context.trace.values().text(invariant.relation);
  const Relation* rules = find_relation(relation);
  for (const GroupCondition& entry : invariant.precondition) {
    if (rules != nullptr && context.trace.values().text(entry.group) == rules->group) {
      condition_ = &entry.condition;
    }
  }
}

bool Applies::at(Row row) {
  if (condition_ == nullptr) return false;
  const SituationId id = context_.view.situation(row);
  if (id >= known_.size()) known_.resize(std::max<std::size_t>(id + 1, 2 * known_.size()));
  Known& known = known_[id];
  if (known == Known::no_answer) {
    const bool yes = holds(context_.trace.values(), context_.trace.shared.situations, *condition_,
                           Example{id, 0, false});
    known = yes ? Known::yes : Known::no;
  }
  return known == Known::yes;
}

bool Applies::at(Row first, Row second) {
  return condition_ != nullptr && holds(context_.trace.values(), context_.trace.shared.situations,
                                        *condition_, context_.view.example(first, second));
}

bool Applies::at(std::span<const Row> rows) {
  if (condition_ == nullptr) return false;
  std::vector<SituationId> ids;
  for (const Row row : rows) ids.push_back(context_.view.situation(row));
  return holds(context_.trace.values(), context_.trace.shared.situations, *condition_, ids);
}

void violate(const Context& context, Outcome& outcome, std::initializer_list<Row> rows) {
  Violation violation;
  violation.records.assign(rows);
  const Record& first = context.trace.at(violation.records[0]);
  const Value step = first.field(context.trace.words.step);
  if (step.kind == Kind::integer) violation.step = step.integer;
  if (step.kind == Kind::real) violation.step = static_cast<std::int64_t>(step.real);
  violation.process = first.process;
  violation.time = first.time;
  for (const Row row : violation.records) {
    violation.time = std::max(violation.time, context.trace.at(row).time);
  }
  outcome.violations.push_back(std::move(violation));
  outcome.verdict = Verdict::failed;
}

void trigger(Outcome& outcome) {
  if (outcome.verdict == Verdict::not_triggered) outcome.verdict = Verdict::passed;
}

}  // namespace ttrace::invariant::compat
