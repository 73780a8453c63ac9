// SPDX-License-Identifier: Apache-2.0
// The report for test dashboards. A phase is a testsuite and a compared tensor a
// testcase; findings are failures of their tensor's testcase, those of no compared tensor have a
// testcase of their own; what was not compared is skipped, and no answer is an error. A testcase
// fails once, however many findings it has, so the counts add up: tests = passed + failures +
// errors + skipped.
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "diff/judge.hpp"
#include "diff/report.hpp"
#include "libttrace/junit.hpp"

namespace ttrace {
namespace {

using namespace junit;

constexpr const char* kTraceSuite = "trace";  // what concerns no single phase

std::string failure(const OrderedFinding& entry) {
  const Finding& finding = entry.finding;
  std::string text = finding.message + "\n";
  if (finding.score > 0) text += "score: " + short_number(finding.score) + "\n";
  for (const auto& [name, value] : finding.evidence) text += name + ": " + value + "\n";
  for (const Cause& cause : entry.causes) {
    text += std::string(cause.guess ? "perhaps" : "cause") + ": " + cause.what + " (" +
            cause.evidence + ")\n";
  }
  if (entry.inherited) text += "may be a consequence of an earlier finding\n";
  return tag("failure",
             {{"type", std::string(name_of(finding.kind))}, {"message", finding.message}}) +
         escaped(text) + "</failure>\n";
}

std::string skipped(const std::string& reason) {
  return tag("skipped", {{"message", reason}}, "/>\n");
}

std::string range_text(double smallest, double largest) {
  char text[64];
  std::snprintf(text, sizeof text, smallest == largest ? "%.3g" : "%.3g .. %.3g", smallest,
                largest);
  return text;
}

class Junit {
 public:
  explicit Junit(const Report& report) : report_(report) {
    for (const OrderedFinding& entry : report.findings) {
      // Whole modules, whole traces and seeds have findings, too: they are no tensors.
      if (!entry.finding.key.module.empty()) findings_[entry.finding.key].push_back(&entry);
    }
  }

  std::string run() {
    std::vector<Suite> suites{whole_trace()};
    for (std::size_t i = 0; i < kPhaseCount; ++i) {
      Suite suite = of_phase(static_cast<Phase>(i));
      if (!suite.cases.empty()) suites.push_back(std::move(suite));
    }
    return print(suites);
  }

 private:
  [[nodiscard]] Attributes properties(const std::string& resolution) const {
    return {{"mode", report_.mode + (report_.weak ? " (weak)" : "")},
            {"resolution", resolution},
            {"reference", report_.reference},
            {"candidate", report_.candidate},
            {"iteration", std::to_string(report_.iteration)},
            {"backend", report_.backend}};
  }

  // One testcase for each finding that concerns no key, and one for the verdict.
  Suite whole_trace() const {
    double smallest = 0, largest = 0;
    for (const PhaseReport& phase : report_.phases) {
      if (phase.largest_limit == 0) continue;
      smallest = largest == 0 ? phase.smallest_limit : std::min(smallest, phase.smallest_limit);
      largest = std::max(largest, phase.largest_limit);
    }
    Suite suite{kTraceSuite, properties(range_text(smallest, largest)), {}};
    Testcase verdict{kTraceSuite, "comparison"};
    if (report_.verdict() == Verdict::trouble) {
      verdict.result = Result::error;
      verdict.body = tag("error", {{"type", "trouble"}, {"message", report_.untested()}}, "/>\n");
    }
    suite.cases.push_back(std::move(verdict));
    std::size_t number = 0;
    for (const OrderedFinding& entry : report_.findings) {
      if (!entry.finding.key.module.empty()) continue;
      suite.cases.push_back(
          {kTraceSuite, std::string(name_of(entry.finding.kind)) + " " + std::to_string(++number),
           Result::failed, failure(entry)});
    }
    return suite;
  }

  Suite of_phase(Phase phase) {
    const PhaseReport& totals = report_.phases[static_cast<std::size_t>(phase)];
    Suite suite{std::string(name_of(phase)),
                properties(range_text(totals.smallest_limit, totals.largest_limit)),
                {}};
    for (const TensorLine& line : report_.tensors) {
      if (line.key.phase == phase) suite.cases.push_back(of_tensor(line));
    }
    for (const auto& [key, entries] : findings_) {  // those of tensors have been taken out
      if (key.phase == phase) suite.cases.push_back(failed(key, entries));
    }
    for (const NotCaptured& entry : report_.not_captured) {
      if (entry.key.phase != phase) continue;
      suite.cases.push_back({entry.key.module, to_string(entry.key), Result::skipped,
                             skipped("not captured: " + entry.reason)});
    }
    return suite;
  }

  using Findings = std::vector<const OrderedFinding*>;

  static Testcase failed(const Key& key, const Findings& entries) {
    Testcase testcase{key.module, to_string(key), Result::failed, {}};
    for (const OrderedFinding* entry : entries) testcase.body += failure(*entry);
    return testcase;
  }

  Testcase of_tensor(const TensorLine& line) {
    const auto found = findings_.find(line.key);
    if (found != findings_.end()) {
      Testcase testcase = failed(line.key, found->second);
      findings_.erase(found);
      return testcase;
    }
    Testcase testcase{line.key.module, to_string(line.key)};
    // The storage of a tensor with a finding, under a second name.
    const bool elsewhere = line.score > 1 && !line.note.empty();
    if (!line.compared || elsewhere) {
      testcase.result = Result::skipped;
      testcase.body = skipped(elsewhere           ? "not judged by itself: " + line.note
                              : line.note.empty() ? "not compared"
                                                  : "not compared: " + line.note);
    }
    return testcase;
  }

  const Report& report_;
  std::map<Key, Findings> findings_;  // of a key; emptied as testcases take them
};

}  // namespace

std::string report_as_junit(const Report& report) { return Junit(report).run(); }

std::string trouble_as_junit(const std::string& message, const std::string& reference,
                             const std::string& candidate) {
  Suite suite{kTraceSuite, {{"reference", reference}, {"candidate", candidate}}, {}};
  suite.cases.push_back({kTraceSuite, "comparison", Result::error,
                         tag("error", {{"type", "trouble"}, {"message", message}}, "/>\n")});
  return print(std::vector<Suite>{suite});
}

}  // namespace ttrace
