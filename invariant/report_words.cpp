// SPDX-License-Identifier: Apache-2.0
// Preconditions and evidence in words.
#include "invariant/report.hpp"

namespace ttrace::invariant {
namespace {

std::string property_text(const Values& values, const Clause& clause) {
  std::string text(values.text(clause.property));
  for (const std::string_view begin :
       {"meta_vars.context_managers.", "meta_vars.", "attributes."}) {
    if (!text.starts_with(begin)) continue;
    text = text.substr(begin.size());
    break;
  }
  if (clause.path.kind != Kind::list) return text;
  for (const Value step : values.elements(clause.path)) text += "." + printed(values, step);
  return text;
}

std::string clause_text(const Values& values, const Clause& clause) {
  const std::string property = property_text(values, clause);
  switch (clause.type) {
    case ClauseType::constant: {
      std::string text = property + " is ";
      for (std::size_t i = 0; i < clause.values.size(); ++i) {
        text += (i == 0 ? "" : " or ") + printed(values, clause.values[i]);
      }
      return text;
    }
    case ClauseType::consistent:
      return property + " is the same";
    case ClauseType::unequal:
      return property + " differs";
    case ClauseType::exist:
      return "within " + property;
  }
  return "";
}

std::string place_text(const ReportInput& input, const Place& place) {
  std::string text;
  if (place.step != kNoStep) text += "step " + std::to_string(place.step) + ", ";
  if (place.staged) text += "stage " + std::string(input.values->text(place.stage)) + ", ";
  text += "process " + std::to_string(place.process) + ", ";
  if (place.file < input.files.size()) {
    const std::string& file = input.files[place.file];
    text += file.substr(file.find_last_of('/') + 1);
  }
  text += ":" + std::to_string(place.line) + ": " + short_name(input.values->text(place.what));
  return place.variable ? text : text + "()";
}

}  // namespace

std::string condition_text(const Values& values, const Invariant& invariant) {
  std::string text;
  for (const GroupCondition& group : invariant.precondition) {
    const Condition& condition = group.condition;
    bool always = false;
    std::string any;
    for (const Conjunction& conjunction : condition.any) {
      always = always || conjunction.empty();
      std::string all;
      for (const Clause& clause : conjunction) {
        all += (all.empty() ? "" : " and ") + clause_text(values, clause);
      }
      any += (any.empty() ? "" : ", or where ") + all;
    }
    if (always) continue;
    text += (condition.inverted ? "except where " : "where ") + any;
  }
  return text;
}

std::string evidence_text(const ReportInput& input, const Evidence& evidence) {
  std::string text = place_text(input, evidence.place);
  if (evidence.pair) text += " and " + place_text(input, evidence.other);
  return evidence.found.empty() ? text : text + ": " + evidence.found;
}

}  // namespace ttrace::invariant
