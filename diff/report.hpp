// SPDX-License-Identifier: Apache-2.0
// The result of a comparison as a value: what the text and the JSON report print, and nothing that
// either of them would have to compute.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/order.hpp"
#include "diff/seed.hpp"
#include "diff/statistics.hpp"

namespace ttrace {

struct PhaseReport {
  std::uint64_t compared = 0;
  std::uint64_t expected = 0;
  std::uint64_t equal = 0;    // of the compared, bit for bit
  double smallest_limit = 0;  // relative; over floating tensors
  double largest_limit = 0;
  double largest_score = 0;
  std::optional<Key> closest;  // the tensor with the largest score
};

struct ModuleSource {
  std::string class_name;
  std::string location;  // file:line of its forward
};

struct LayoutLine {
  std::string name;  // of the tensors, block numbers starred
  std::string layout;
  std::string reason;
  std::uint64_t tensors = 0;
  bool assumed = false;
};

struct TensorLine {
  Key key;
  bool compared = false;
  bool equal = false;
  double error = 0;
  double limit = 0;
  double score = 0;
  std::string note;
  std::string statistic;  // by which it was judged; "": the norm of the error
  std::optional<Resolution> resolution;
};

// An iteration after the judged one: what rounding has become since, for information.
struct LaterIteration {
  std::int64_t iteration = 0;
  struct Largest {
    double error = 0;
    std::string key;
  };
  std::map<Phase, Largest> largest;
  // The first tensor that is wrong altogether where all before it in that iteration are right, as
  // nothing is that has only drifted.
  struct Jump {
    Key key;
    double error = 0;           // relative
    double score = 0;           // in units of the limit that the first iteration would have
    std::uint64_t before = 0;   // tensors earlier in that iteration; all parameters count as one
    double largest_before = 0;  // relative error of these
    std::string largest_before_name;  // "": all are equal
  };
  std::optional<Jump> jump;
};

enum class Verdict : std::uint8_t { same, differs, trouble };

struct Report {
  std::string reference, candidate;      // paths
  std::int64_t iteration = 0;            // the first judged
  std::vector<std::int64_t> iterations;  // all that were judged
  std::string mode;
  bool weak = true;
  std::string backend;
  bool by_content = true;  // micro-batches were matched by their inputs
  double drift = 0;        // by how many epsilons a later iteration began with other parameters

  std::vector<OrderedFinding> findings;
  std::map<std::string, ModuleSource> sources;  // of the modules that findings name
  std::array<PhaseReport, kPhaseCount> phases;
  std::vector<NotCaptured> not_captured;
  std::string doubt;  // an update that a run made and could not record; "" when there is none
  Seeds seeds;
  std::vector<LayoutLine> layouts;
  std::vector<TensorLine> tensors;
  std::vector<LaterIteration> later;
  std::array<double, kStatisticKinds> largest_scores{};
  std::uint64_t edges = 0;
  std::uint64_t skipped = 0;      // collectives
  std::uint64_t excluded = 0;     // elements of updates
  std::uint64_t nan_on_both = 0;  // elements

  // Trouble: there is no finding, but no output of any module was compared, or nothing of the
  // update of some trainable parameter.
  [[nodiscard]] Verdict verdict() const;
  [[nodiscard]] bool same() const { return verdict() == Verdict::same; }
  [[nodiscard]] std::string untested() const;  // what, and what to do about it; "" when nothing is
  [[nodiscard]] std::uint64_t compared() const;
  [[nodiscard]] std::uint64_t expected() const;
  [[nodiscard]] std::uint64_t inherited() const;
};

struct TextOptions {
  std::size_t top = 10;  // findings
  bool verbose = false;
  bool color = false;
};

// The smallest errors that would have been flagged, in one line.
[[nodiscard]] std::string resolution_text(const Report& report);
[[nodiscard]] std::string report_as_text(const Report& report, const TextOptions& options);
// docs/report.md
[[nodiscard]] std::string report_as_json(const Report& report);
// When there is no answer: the same document with the verdict "trouble".
[[nodiscard]] std::string trouble_as_json(const std::string& message);
// The report for test dashboards: JUnit's XML (report_junit.cpp says what becomes what).
[[nodiscard]] std::string report_as_junit(const Report& report);
// When there is no answer: the same document with one error. `reference` and `candidate` as given.
[[nodiscard]] std::string trouble_as_junit(const std::string& message, const std::string& reference,
                                           const std::string& candidate);

}  // namespace ttrace
