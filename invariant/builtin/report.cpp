// SPDX-License-Identifier: Apache-2.0
// See report.hpp.
#include "invariant/builtin/report.hpp"

#include <algorithm>
#include <set>

#include "invariant/builtin/evidence.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace::builtin {
namespace {

bool fails(const Violation& violation) { return violation.certainty != Certainty::possible; }

std::vector<const CheckEntry*> chosen(const std::vector<std::string>& wanted) {
  std::vector<const CheckEntry*> entries;
  std::set<std::string> unknown(wanted.begin(), wanted.end());
  for (const CheckEntry& entry : all_checks()) {
    unknown.erase(std::string(entry.name));
    const bool named = std::find(wanted.begin(), wanted.end(), entry.name) != wanted.end();
    if (wanted.empty() || named) entries.push_back(&entry);
  }
  if (!unknown.empty()) {
    throw Trouble("--check", *unknown.begin(), "there is no such check, --list shows all");
  }
  return entries;
}

Verdict verdict_of(const Outcome& outcome) {
  if (std::any_of(outcome.violations.begin(), outcome.violations.end(), fails)) {
    return Verdict::violated;
  }
  return outcome.total_compared() == 0 ? Verdict::not_checked : Verdict::passed;
}

// Surest first in each iteration; else in the order in which the check found them.
void sort_violations(std::vector<Violation>& violations) {
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& left, const Violation& right) {
                     if (fails(left) != fails(right)) return fails(left);
                     return left.iteration < right.iteration;
                   });
}

std::string counts_text(const std::map<std::string, std::uint64_t>& counts) {
  std::string text;
  for (const auto& [noun, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + noun;
  }
  return text;
}

std::string violation_text(const Violation& violation) {
  std::string text = "  " + std::string(name_of(violation.certainty)) + ": ";
  if (violation.iteration >= 0 && violation.key.empty()) {
    text += "iteration " + std::to_string(violation.iteration) + ": ";
  }
  text += violation.what + "\n";
  for (const auto& [name, value] : violation.evidence) {
    if (value.empty() || (name == "module" && value == violation.module)) continue;
    text += "    " + name + ": " + value + "\n";
  }
  if (!violation.advice.empty()) text += "    look at: " + violation.advice + "\n";
  return text;
}

std::string result_text(const CheckResult& result, std::size_t top) {
  std::string text =
      result.name + ": " + std::string(name_of(result.verdict)) + " (" + result.asks + ")\n";
  if (!result.outcome.compared.empty()) {
    text += "  compared " + counts_text(result.outcome.compared) + "\n";
  }
  for (const auto& [why, count] : result.outcome.unchecked) {
    text += "  not checked" + (count > 1 ? ", " + std::to_string(count) + " x" : "") + ": " + why +
            "\n";
  }
  const auto& violations = result.outcome.violations;
  for (std::size_t i = 0; i < std::min(top, violations.size()); ++i) {
    text += violation_text(violations[i]);
  }
  if (violations.size() > top) {
    text += "  and " + std::to_string(violations.size() - top) + " more, --top " +
            std::to_string(violations.size()) + " lists them\n";
  }
  return text;
}

// The only reason why a check compared nothing; "": there are several, or it did.
std::string only_reason(const CheckResult& result) {
  const Outcome& outcome = result.outcome;
  const bool nothing = result.verdict == Verdict::not_checked && outcome.violations.empty();
  return nothing && outcome.unchecked.size() == 1 ? outcome.unchecked.begin()->first : "";
}

// Checks in a row that could say nothing for one reason are one line.
std::string results_text(const std::vector<CheckResult>& results, std::size_t top) {
  std::string text;
  for (std::size_t i = 0; i < results.size();) {
    const std::string reason = only_reason(results[i]);
    std::size_t end = i + 1;
    std::string names = results[i].name;
    while (!reason.empty() && end < results.size() && only_reason(results[end]) == reason) {
      names += ", " + results[end++].name;
    }
    text += end - i == 1 ? result_text(results[i], top)
                         : names + ": not checked\n  not checked: " + reason + "\n";
    i = end;
  }
  return text;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return "passed";
    case Verdict::violated:
      return "violated";
    case Verdict::not_checked:
      return "not checked";
  }
  return "";
}

Verdict CheckReport::verdict() const {
  Verdict verdict = Verdict::not_checked;
  for (const CheckResult& result : results) {
    if (result.verdict == Verdict::violated) return Verdict::violated;
    if (result.verdict == Verdict::passed) verdict = Verdict::passed;
  }
  return verdict;
}

std::size_t count_checks(const std::vector<std::string>& wanted) { return chosen(wanted).size(); }

CheckReport run_checks(const Trace& trace, const std::vector<std::string>& wanted,
                       const std::function<void()>& advance) {
  Evidence evidence(trace);
  CheckReport report;
  report.trace = trace.path().string();
  report.iterations = evidence.iterations();
  std::vector<std::unique_ptr<Check>> checks;
  for (const CheckEntry* entry : chosen(wanted)) {
    CheckResult& result = report.results.emplace_back();
    result.name = entry->name;
    result.asks = entry->asks;
    checks.push_back(entry->make());
  }
  for (const std::int64_t iteration : evidence.iterations()) {
    evidence.move_to(iteration);
    for (std::size_t i = 0; i < checks.size(); ++i) {
      checks[i]->look_at(evidence, iteration, report.results[i].outcome);
      advance();
    }
  }
  for (std::size_t i = 0; i < checks.size(); ++i) {
    CheckResult& result = report.results[i];
    checks[i]->finish(evidence, result.outcome);
    // A count of nothing compared nothing.
    std::erase_if(result.outcome.compared, [](const auto& counted) { return counted.second == 0; });
    sort_violations(result.outcome.violations);
    result.verdict = verdict_of(result.outcome);
  }
  return report;
}

std::string as_text(const CheckReport& report, std::size_t top) {
  const std::string text = results_text(report.results, top);
  std::size_t passed = 0, possible = 0;
  std::string violated;
  for (const CheckResult& result : report.results) {
    if (result.verdict == Verdict::passed) ++passed;
    if (result.verdict == Verdict::violated)
      violated += (violated.empty() ? "" : ", ") + result.name;
    for (const Violation& violation : result.outcome.violations) possible += !fails(violation);
  }
  std::string last = "\n" + std::string(name_of(report.verdict()));
  if (!violated.empty()) last += ": " + violated;
  last +=
      "; " + std::to_string(passed) + " of " + counted(report.results.size(), "check") + " passed";
  if (possible > 0) last += ", " + counted(possible, "thing") + " to look at that may be meant";
  if (!report.ends_early.empty()) last += "; " + report.ends_early;
  return text + last + "\n";
}

}  // namespace ttrace::builtin
