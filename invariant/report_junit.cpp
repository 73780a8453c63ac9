// SPDX-License-Identifier: Apache-2.0
// The report for test dashboards: a relation is a testsuite, an invariant a testcase; what did not
// apply is skipped.
#include <map>

#include "invariant/report.hpp"
#include "libttrace/junit.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::size_t kViolations = 20;  // of an invariant

std::string failure(const ReportInput& input, const Judgement& judgement) {
  std::string text = condition_text(*input.values, *judgement.invariant) + "\n";
  for (std::size_t i = 0; i < judgement.evidence.size() && i < kViolations; ++i) {
    text += evidence_text(input, judgement.evidence[i]) + "\n";
  }
  if (judgement.violations > kViolations) {
    text += "and " + std::to_string(judgement.violations - kViolations) + " more\n";
  }
  text += judgement.relation->advice(*input.values, *judgement.invariant) + "\n";
  const std::string message = count_text(*input.values, judgement);
  return junit::tag("failure", {{"type", "violation"}, {"message", message}}) +
         junit::escaped(text) + "</failure>\n";
}

junit::Testcase testcase(const ReportInput& input, const Judgement& judgement) {
  junit::Testcase entry;
  entry.module = std::string(input.values->text(judgement.invariant->relation));
  const std::string condition = condition_text(*input.values, *judgement.invariant);
  entry.name = judgement.invariant->text + (condition.empty() ? "" : ", " + condition);
  entry.result = junit::Result::passed;
  if (judgement.verdict == Verdict::failed) {
    entry.result = junit::Result::failed;
    entry.body = failure(input, judgement);
  } else if (judgement.verdict == Verdict::possible) {
    entry.result = junit::Result::skipped;
    const std::string message = "weak: " + count_text(*input.values, judgement);
    entry.body = junit::tag("skipped", {{"message", message}}, "/>\n");
  } else if (judgement.verdict == Verdict::not_triggered) {
    entry.result = junit::Result::skipped;
    entry.body = junit::tag("skipped", {{"message", "did not apply"}}, "/>\n");
  }
  return entry;
}

}  // namespace

std::string junit_report(const ReportInput& input) {
  std::map<std::string, junit::Suite> suites;
  for (const Judgement& judgement : input.result->judgements) {
    const std::string relation(input.values->text(judgement.invariant->relation));
    junit::Suite& suite = suites[relation];
    suite.name = relation;
    suite.properties = {{"trace", input.trace}};
    suite.cases.push_back(testcase(input, judgement));
  }
  for (const NaNLoss& loss : input.nan_losses) {
    junit::Testcase entry{"built in", "the loss is a number", junit::Result::failed, ""};
    const std::string said = nan_text(input, loss);
    entry.body = junit::tag("failure", {{"type", "violation"}, {"message", said}}) +
                 junit::escaped(said) + "</failure>\n";
    suites["built in"].name = "built in";
    suites["built in"].cases.push_back(std::move(entry));
  }
  std::vector<junit::Suite> all;
  for (auto& [name, suite] : suites) all.push_back(std::move(suite));
  return junit::print(all, "ttrace-check");
}

}  // namespace ttrace::invariant
