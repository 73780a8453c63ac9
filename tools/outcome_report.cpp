// SPDX-License-Identifier: Apache-2.0
// See outcome_report.hpp.
#include "tools/outcome_report.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libttrace/junit.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;
using invariant::Outcome;
using invariant::Verdict;
using invariant::Violation;

// What a reader should look at, by relation.
std::string_view advice(std::string_view relation, bool variable) {
  if (relation == "APIContainRelation") {
    return variable ? "whether the variable is trainable, has a gradient, and is the one that the "
                      "optimizer holds"
                    : "why the call went another way: its arguments, the mode (train, eval), the "
                      "context managers around it";
  }
  if (relation == "ConsistencyRelation") {
    return "what changed one of the two variables and not the other: a missing synchronisation, a "
           "different update";
  }
  if (relation == "ConsistentOutputRelation" || relation == "ConsistentInputOutputRelation") {
    return "the dtype, shape or flags of what went in and came out; casts and no_grad around it";
  }
  if (relation == "FunctionCoverRelation" || relation == "FunctionLeadRelation") {
    return "whether a call was left out, is there twice, or in another order in the training loop";
  }
  if (relation == "DistinctArgumentRelation") {
    return "why two calls in a step got the same: the same data on two ranks, a loop that does not "
           "advance";
  }
  return "the value and its bound";
}

std::string advice_for(const OutcomeReport& report, const Outcome& outcome) {
  const auto& params = outcome.invariant->params;
  const bool variable = params.size() == 2 && params[1].type == invariant::ParamType::variable_type;
  return std::string(advice(report.values.text(outcome.invariant->relation), variable));
}

std::string place_of(const OutcomeReport& report, std::uint32_t row) {
  const invariant::Record& record = report.records.records[row];
  std::string out = record.file < report.records.files.size()
                        ? std::filesystem::path(report.records.files[record.file]).filename()
                        : std::filesystem::path("?");
  return out + ":" + std::to_string(record.line);
}

std::string subject_of(const OutcomeReport& report, std::uint32_t row) {
  const invariant::Record& record = report.records.records[row];
  const bool state = record.kind == invariant::RecordKind::state;
  return std::string(report.values.text(state ? record.variable : record.function));
}

std::string where(const Violation& violation) {
  std::string out = violation.step ? "step " + std::to_string(*violation.step) + ", " : "";
  return out + "process " + std::to_string(violation.process);
}

std::string name_of(Verdict verdict) {
  if (verdict == Verdict::passed) return "passed";
  return verdict == Verdict::failed ? "violated" : "not_triggered";
}

Json violation_json(const OutcomeReport& report, const Violation& violation) {
  Json out;
  out["step"] = violation.step ? Json(*violation.step) : Json();
  out["process"] = violation.process;
  out["time"] = violation.time;
  out["records"] = Json::array();
  for (const std::uint32_t row : violation.records) {
    out["records"].push_back({{"at", place_of(report, row)}, {"what", subject_of(report, row)}});
  }
  return out;
}

std::string printable(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::size_t OutcomeReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count(outcomes, verdict, &Outcome::verdict));
}

std::vector<const Outcome*> OutcomeReport::failed() const {
  std::vector<const Outcome*> out;
  for (const Outcome& outcome : outcomes) {
    if (outcome.verdict == Verdict::failed) out.push_back(&outcome);
  }
  std::ranges::stable_sort(out, {}, [](const Outcome* outcome) {
    const Violation& first = outcome->violations[0];
    return std::pair(first.step.value_or(-1), first.time);
  });
  return out;
}

std::string outcomes_text(const OutcomeReport& report, std::size_t top) {
  const std::vector<const Outcome*> failed = report.failed();
  std::string out = std::to_string(failed.size()) + " of " +
                    std::to_string(report.outcomes.size()) + " invariants violated, " +
                    std::to_string(report.count(Verdict::passed)) + " passed, " +
                    std::to_string(report.count(Verdict::not_triggered)) + " never applied\n";
  for (std::size_t i = 0; i < std::min(top, failed.size()); ++i) {
    const Outcome& outcome = *failed[i];
    const Violation& first = outcome.violations[0];
    out += "\n" + outcome.invariant->text + "\n  " +
           std::string(report.values.text(outcome.invariant->relation)) + ", violated " +
           std::to_string(outcome.violations.size()) +
           (outcome.violations.size() == 1 ? " time: " : " times, first: ") + where(first) + "\n";
    for (const std::uint32_t row : first.records) {
      out += "    " + place_of(report, row) + "  " + subject_of(report, row) + "\n";
    }
    out += "  look at: " + advice_for(report, outcome) + "\n";
  }
  if (failed.size() > top) {
    out += "\n" + std::to_string(failed.size() - top) + " more; --top N prints N\n";
  }
  return out;
}

std::string outcomes_json(const OutcomeReport& report) {
  Json json;
  json["format"] = "ttrace-check-invariants";
  json["version"] = 1;
  json["verdict"] = report.count(Verdict::failed) > 0 ? "violated" : "passed";
  json["trace"] = report.trace;
  json["invariants"] = report.outcomes.size();
  json["violated"] = report.count(Verdict::failed);
  json["passed"] = report.count(Verdict::passed);
  json["not_triggered"] = report.count(Verdict::not_triggered);
  json["outcomes"] = Json::array();
  for (const Outcome& outcome : report.outcomes) {
    Json entry;
    entry["invariant"] = outcome.invariant->text;
    entry["relation"] = report.values.text(outcome.invariant->relation);
    entry["verdict"] = name_of(outcome.verdict);
    if (outcome.verdict == Verdict::failed) entry["look_at"] = advice_for(report, outcome);
    entry["violations"] = Json::array();
    for (const Violation& violation : outcome.violations) {
      entry["violations"].push_back(violation_json(report, violation));
    }
    json["outcomes"].push_back(std::move(entry));
  }
  return printable(json);
}

std::string outcomes_junit(const OutcomeReport& report) {
  std::vector<junit::Suite> suites;
  for (const Outcome& outcome : report.outcomes) {
    const std::string relation(report.values.text(outcome.invariant->relation));
    auto suite = std::ranges::find(suites, relation, &junit::Suite::name);
    if (suite == suites.end()) {
      suite = suites.insert(suite, {relation, {{"trace", report.trace}}, {}});
    }
    junit::Testcase entry{"", outcome.invariant->text, junit::Result::passed};
    if (outcome.verdict == Verdict::not_triggered) {
      entry.result = junit::Result::skipped;
      entry.body = junit::tag("skipped", {{"message", "it never applied"}}, "/>\n");
    } else if (outcome.verdict == Verdict::failed) {
      std::string text;
      for (const Violation& violation : outcome.violations) {
        text += where(violation) + ": " + place_of(report, violation.records[0]) + " " +
                subject_of(report, violation.records[0]) + "\n";
      }
      text += "look at: " + advice_for(report, outcome);
      entry.result = junit::Result::failed;
      entry.body =
          junit::tag("failure", {{"type", relation}, {"message", where(outcome.violations[0])}}) +
          junit::escaped(text) + "</failure>\n";
    }
    suite->cases.push_back(std::move(entry));
  }
  return junit::print(suites);
}

}  // namespace ttrace
