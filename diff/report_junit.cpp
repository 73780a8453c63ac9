// SPDX-License-Identifier: Apache-2.0
// The report for test dashboards, as JUnit's XML. A phase is a testsuite and a compared tensor a
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

namespace ttrace {
namespace {

constexpr const char* kTraceSuite = "trace";  // what concerns no single phase

// ---- XML ----

// Bytes of the UTF-8 sequence that begins at `at`; 0 when it is not one (overlong, cut, surrogate).
std::size_t sequence_at(const std::string& text, std::size_t at, std::uint32_t& code) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                                           : 4;
  if (length == 0 || lead > 0xf4 || at + length > text.size()) return 0;
  constexpr unsigned kMasks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  code = lead & kMasks[length];
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

// XML 1.0 has no way to write most control characters, so they are spelt out; what is no UTF-8 or
// no character becomes U+FFFD. Line ends are references: readers fold them in attributes.
std::string escaped(const std::string& text) {
  static const std::map<std::uint32_t, const char*> kReferences = {
      {'&', "&amp;"},  {'<', "&lt;"},  {'>', "&gt;"},   {'"', "&quot;"},
      {'\'', "&#39;"}, {'\t', "&#9;"}, {'\n', "&#10;"}, {'\r', "&#13;"}};
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t code = 0;
    const std::size_t length = sequence_at(text, at, code);
    const auto reference = kReferences.find(code);
    if (length == 0 || code == 0xfffe || code == 0xffff) {
      out += "\xef\xbf\xbd";
    } else if (reference != kReferences.end()) {
      out += reference->second;
    } else if (code < 0x20) {
      char spelt[8];
      std::snprintf(spelt, sizeof spelt, "\\x%02x", static_cast<unsigned>(code));
      out += spelt;
    } else {
      out.append(text, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

using Attributes = std::vector<std::pair<std::string, std::string>>;

std::string tag(const std::string& name, const Attributes& attributes, const char* end = ">") {
  std::string text = "<" + name;
  for (const auto& [key, value] : attributes) text += " " + key + "=\"" + escaped(value) + "\"";
  return text + end;
}

// ---- the document ----

enum class Result : std::uint8_t { passed, skipped, failed, error };

struct Testcase {
  std::string module;
  std::string name;
  Result result = Result::passed;
  std::string body = {};  // elements
};

struct Suite {
  std::string name;
  Attributes properties;
  std::vector<Testcase> cases;

  [[nodiscard]] std::size_t count(Result result) const {
    std::size_t number = 0;
    for (const Testcase& entry : cases) number += entry.result == result;
    return number;
  }
};

Attributes counts_of(const std::vector<Suite>& suites) {
  std::size_t tests = 0, failures = 0, errors = 0, skipped = 0;
  for (const Suite& suite : suites) {
    tests += suite.cases.size();
    failures += suite.count(Result::failed);
    errors += suite.count(Result::error);
    skipped += suite.count(Result::skipped);
  }
  return {{"tests", std::to_string(tests)},
          {"failures", std::to_string(failures)},
          {"errors", std::to_string(errors)},
          {"skipped", std::to_string(skipped)}};
}

Attributes named(const std::string& name, Attributes attributes) {
  attributes.insert(attributes.begin(), {"name", name});
  return attributes;
}

std::string print(const Suite& suite) {
  std::string text = tag("testsuite", named(suite.name, counts_of({suite}))) + "\n<properties>\n";
  for (const auto& [name, value] : suite.properties) {
    text += tag("property", {{"name", name}, {"value", value}}, "/>\n");
  }
  text += "</properties>\n";
  for (const Testcase& entry : suite.cases) {
    text += tag("testcase", {{"classname", entry.module}, {"name", entry.name}},
                entry.body.empty() ? "/>\n" : ">\n");
    if (!entry.body.empty()) text += entry.body + "</testcase>\n";
  }
  return text + "</testsuite>\n";
}

std::string print(const std::vector<Suite>& suites) {
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
                     tag("testsuites", named("ttrace-diff", counts_of(suites))) + "\n";
  for (const Suite& suite : suites) text += print(suite);
  return text + "</testsuites>\n";
}

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
