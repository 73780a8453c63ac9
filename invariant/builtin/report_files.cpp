// SPDX-License-Identifier: Apache-2.0
// The report for programs: JSON and JUnit's XML. docs/report.md describes both.
#include <nlohmann/json.hpp>

#include "invariant/builtin/report.hpp"
#include "libttrace/junit.hpp"

namespace ttrace::builtin {
namespace {

using Json = nlohmann::ordered_json;

Json violation_json(const Violation& violation) {
  Json evidence = Json::object();
  for (const auto& [name, value] : violation.evidence) evidence[name] = value;
  Json json;
  json["certainty"] = name_of(violation.certainty);
  json["iteration"] = violation.iteration;
  json["microbatch"] = violation.microbatch >= 0 ? Json(violation.microbatch) : Json();
  json["ranks"] = violation.ranks;
  json["module"] = violation.module;
  json["key"] = violation.key;
  json["what"] = violation.what;
  json["look_at"] = violation.advice;
  json["evidence"] = std::move(evidence);
  return json;
}

std::string element(const char* name, const char* type, const std::string& message,
                    const std::string& text) {
  return junit::tag(name, {{"type", type}, {"message", message}}) + junit::escaped(text) + "</" +
         name + ">\n";
}

junit::Suite suite_of(const CheckReport& report, const CheckResult& result) {
  junit::Suite suite;
  suite.name = result.name;
  suite.properties = {{"trace", report.trace}, {"asks", result.asks}};
  for (const auto& [noun, count] : result.outcome.compared) {
    suite.properties.emplace_back("compared " + noun, std::to_string(count));
  }
  junit::Testcase whole{"", result.name, junit::Result::passed};
  if (result.verdict == Verdict::not_checked) {
    std::string why;
    for (const auto& [reason, count] : result.outcome.unchecked) why += reason + "\n";
    whole.result = junit::Result::skipped;
    whole.body = junit::tag("skipped", {{"message", why}}, "/>\n");
  }
  std::size_t number = 0;
  for (const Violation& violation : result.outcome.violations) {
    if (violation.certainty == Certainty::possible) continue;
    const std::string name = violation.key.empty() ? result.name : violation.key;
    suite.cases.push_back(
        {violation.module, name + " (" + std::to_string(++number) + ")", junit::Result::failed,
         element("failure", result.name.c_str(), violation.what, "look at: " + violation.advice)});
  }
  if (number == 0) suite.cases.push_back(std::move(whole));
  return suite;
}

}  // namespace

std::string as_json(const CheckReport& report) {
  Json json;
  json["format"] = "ttrace-check";
  json["version"] = 1;
  json["verdict"] = name_of(report.verdict());
  json["trace"] = report.trace;
  json["iterations"] = report.iterations;
  json["ends_early"] = report.ends_early;
  json["checks"] = Json::array();
  for (const CheckResult& result : report.results) {
    Json entry;
    entry["name"] = result.name;
    entry["asks"] = result.asks;
    entry["verdict"] = name_of(result.verdict);
    entry["compared"] = result.outcome.compared;
    entry["not_checked"] = result.outcome.unchecked;
    entry["violations"] = Json::array();
    for (const Violation& violation : result.outcome.violations) {
      entry["violations"].push_back(violation_json(violation));
    }
    json["checks"].push_back(std::move(entry));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_junit(const CheckReport& report) {
  std::vector<junit::Suite> suites;
  for (const CheckResult& result : report.results) suites.push_back(suite_of(report, result));
  return junit::print(suites, "ttrace-check");
}

std::string trouble_as_json(const std::string& message, const std::string& trace) {
  Json json;
  json["format"] = "ttrace-check";
  json["version"] = 1;
  json["verdict"] = "trouble";
  json["trace"] = trace;
  json["message"] = message;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string trouble_as_junit(const std::string& message, const std::string& trace) {
  junit::Suite suite;
  suite.name = "check";
  suite.properties = {{"trace", trace}};
  suite.cases.push_back(
      {"", "check", junit::Result::error, element("error", "trouble", message, message)});
  return junit::print({suite}, "ttrace-check");
}

}  // namespace ttrace::builtin
