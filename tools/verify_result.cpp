// SPDX-License-Identifier: Apache-2.0
// See verify_result.hpp.
#include "tools/verify_result.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libttrace/file.hpp"

namespace ttrace {
namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void read_coverage(Comparison& comparison, const json& coverage) {
  comparison.compared = coverage.value("compared", std::uint64_t{0});
  comparison.expected = coverage.value("expected", std::uint64_t{0});
  const json phases = coverage.value("phases", json::object());
  for (const auto& [name, phase] : phases.items()) {
    const double smallest = phase.value("smallest_limit", 0.0);
    const bool first = comparison.smallest_limit == 0 || smallest < comparison.smallest_limit;
    if (smallest > 0 && first) comparison.smallest_limit = smallest;
    comparison.largest_limit =
        std::max(comparison.largest_limit, phase.value("largest_limit", 0.0));
    comparison.score = std::max(comparison.score, phase.value("largest_score", 0.0));
  }
}

}  // namespace

std::string Comparison::place() const {
  if (module.empty()) return "the trace as a whole";
  return "`" + module + "` (" + phase + (slot.empty() ? "" : ", " + slot) + ")";
}

bool Comparison::structural() const {
  return module.empty() || kind == "missing" || kind == "unexpected" || kind == "different_data" ||
         kind == "incomplete_trace";
}

Comparison read_comparison(const std::vector<std::filesystem::path>& outputs) {
  Comparison comparison;
  comparison.text = read_text(outputs[0]);
  comparison.json = read_text(outputs[1]);
  comparison.junit = read_text(outputs[2]);
  const json report = json::parse(comparison.json, nullptr, false);
  if (!report.is_object()) return no_comparison(outputs[1].string() + " is no report");
  const std::string verdict = text_at(report, "verdict");
  comparison.verdict = verdict == "same"      ? Verdict::same
                       : verdict == "differs" ? Verdict::differs
                                              : Verdict::trouble;
  comparison.message = text_at(report, "message");
  read_coverage(comparison, report.value("coverage", json::object()));
  const json first = report.value("first", json());
  if (comparison.verdict != Verdict::differs || !first.is_object()) return comparison;
  comparison.message = text_at(first, "message");
  comparison.kind = text_at(first, "kind");
  comparison.module = text_at(first, "module");
  comparison.phase = text_at(first, "phase");
  comparison.slot = text_at(first, "slot");
  comparison.score = first.value("score", 0.0);
  return comparison;
}

Comparison no_comparison(const std::string& why) {
  Comparison comparison;
  comparison.message = why;
  return comparison;
}

Comparison not_applicable(const std::string& why) {
  Comparison comparison = no_comparison(why);
  comparison.applies = false;
  return comparison;
}

Verdict CandidateResult::verdict() const {
  if (!local.applies) return end_to_end.verdict;
  for (const Verdict verdict : {Verdict::differs, Verdict::trouble}) {
    if (local.verdict == verdict || end_to_end.verdict == verdict) return verdict;
  }
  return Verdict::same;
}

const Comparison& CandidateResult::decisive() const {
  return local.applies && local.verdict == verdict() ? local : end_to_end;
}

}  // namespace ttrace
