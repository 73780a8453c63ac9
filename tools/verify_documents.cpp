// SPDX-License-Identifier: Apache-2.0
// See verify_documents.hpp.
#include "tools/verify_documents.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "diff/report.hpp"
#include "tools/shell.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVerifyVersion = 1;

const char* name_of(Verdict verdict) {
  constexpr std::array kNames = {"same", "differs", "trouble"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Json report_of(const Comparison& comparison) {
  const Json report = Json::parse(comparison.json, nullptr, false);
  return report.is_object() ? report : Json::parse(trouble_as_json(comparison.message));
}

Json candidate_json(const CandidateResult& result) {
  return {{"name", result.name},
          {"verdict", name_of(result.verdict())},
          {"found", result.verdict() != Verdict::differs ? ""
                    : result.decided_locally()           ? "local"
                                                         : "end_to_end"},
          {"local", report_of(result.local)},
          {"end_to_end", report_of(result.end_to_end)},
          {"commands", result.commands}};
}

Verdict verdict_of(const VerifyRun& run) {
  Verdict worst = run.trouble.empty() ? Verdict::same : Verdict::trouble;
  for (const CandidateResult& result : run.candidates) worst = std::max(worst, result.verdict());
  return worst;
}

std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json document(const char* verdict) {
  return {{"format", "ttrace-verify"}, {"version", kVerifyVersion}, {"verdict", verdict}};
}

// ---- JUnit: documents of ttrace-diff, put together ----

constexpr const char* kHead = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
constexpr std::array kCounts = {"tests", "failures", "errors", "skipped"};

class Suites {
 public:
  void add(const std::string& name, const Comparison& comparison) {
    const std::string document = !comparison.junit.empty()
                                     ? comparison.junit
                                     : trouble_as_junit(comparison.message, "reference", name);
    const std::size_t root = document.find("<testsuites");
    const std::size_t begin = document.find('>', root);
    const std::size_t end = document.rfind("</testsuites>");
    if (root == std::string::npos || end == std::string::npos) return;
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      counts_[i] += count(document.substr(root, begin - root), kCounts[i]);
    }
    std::string inner = document.substr(begin + 2, end - begin - 2);
    const std::string opening = "\n<testsuite name=\"";
    inner.insert(0, "\n");
    for (std::size_t at = inner.find(opening); at != std::string::npos;
         at = inner.find(opening, at + opening.size())) {
      inner.insert(at + opening.size(), name + " ");
    }
    suites_ += inner.substr(1);
  }

  [[nodiscard]] std::string document() const {
    std::string text = std::string(kHead) + "<testsuites name=\"ttrace-verify\"";
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      text += std::string(" ") + kCounts[i] + "=\"" + std::to_string(counts_[i]) + "\"";
    }
    return text + ">\n" + suites_ + "</testsuites>\n";
  }

 private:
  static unsigned long count(const std::string& tag, const std::string& name) {
    const std::size_t at = tag.find(" " + name + "=\"");
    return at == std::string::npos ? 0
                                   : std::strtoul(tag.c_str() + at + name.size() + 3, nullptr, 10);
  }

  std::array<unsigned long, kCounts.size()> counts_{};
  std::string suites_;
};

void add_candidate(Suites& suites, const CandidateResult& result) {
  if (result.local.applies) suites.add(result.name + " local", result.local);
  suites.add(result.name + " end to end", result.end_to_end);
}

// ---- the script ----

std::string script_line(const Step& step, bool keep_going) {
  std::string line = "\n# " + step.title() + "\n" + shell_line(step.words);
  switch (step.kind) {
    case StepKind::capture:
      return line + (keep_going ? " || :\n" : " || exit 2\n");
    case StepKind::pack:  // 1: something could not be put into the pack
      return line + " || [ $? -eq 1 ] || exit 2\n";
    case StepKind::compare:
      return line + "\nsee $?\n";
  }
  return line;
}

}  // namespace

std::string run_as_json(const VerifyRun& run) {
  Json json = document(name_of(verdict_of(run)));
  if (!run.trouble.empty()) json["message"] = run.trouble;
  json["reference_precision"] = run.low_precision.empty() ? Json(nullptr) : Json(run.low_precision);
  json["cached_steps"] = run.cached;
  json["candidates"] = Json::array();
  for (const CandidateResult& result : run.candidates) {
    json["candidates"].push_back(candidate_json(result));
  }
  return dump(json);
}

std::string candidate_as_json(const CandidateResult& result) {
  Json json = document(name_of(result.verdict()));
  json["candidates"] = Json::array({candidate_json(result)});
  return dump(json);
}

std::string run_as_junit(const VerifyRun& run) {
  Suites suites;
  for (const CandidateResult& result : run.candidates) add_candidate(suites, result);
  if (!run.trouble.empty()) {
    Comparison none;
    none.message = run.trouble;
    suites.add("reference", none);
  }
  return suites.document();
}

std::string candidate_as_junit(const CandidateResult& result) {
  Suites suites;
  add_candidate(suites, result);
  return suites.document();
}

std::string steps_as_script(const std::vector<Step>& steps, bool keep_going) {
  std::error_code error;
  std::string text =
      "#!/bin/sh\n"
      "# What ttrace-verify ran, step by step. Exit code 0: all candidates are the same; 1: one\n"
      "# differs; 2: a step failed or gave no answer.\n"
      "unset TTRACE_RUN_ID\n"
      "cd " +
      shell_quoted(std::filesystem::current_path(error).string()) +
      " || exit 2\n"
      "verdict=0\n"
      "one=0  # of a candidate: it differs when either comparison says so\n"
      "see() { case $1 in 0) ;; 1) one=1 ;; *) [ $one -eq 1 ] || one=2 ;; esac; }\n"
      "done_with_one() { [ $one -le $verdict ] || verdict=$one; one=0; }\n";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i > 0 && steps[i].owner != steps[i - 1].owner) text += "done_with_one\n";
    text += script_line(steps[i], keep_going);
  }
  return text + "done_with_one\nexit $verdict\n";
}

}  // namespace ttrace
