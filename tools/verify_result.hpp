// SPDX-License-Identifier: Apache-2.0
// What came out for one candidate: two comparisons and the verdict that follows from them.
//   local       each module alone, fed with the candidate's own tensors: sharp, and names the place
//   end to end  the whole run: sees what a replay cannot, missing tensors and wrong loss scaling
// The candidate differs when either finds something; it is the same when both say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "diff/report.hpp"

namespace ttrace {

// Of ttrace-diff, as far as it is read here.
struct Comparison {
  Verdict verdict = Verdict::trouble;
  std::string message;  // of the first finding; with trouble: why there is no answer
  std::string kind, module, phase, slot;  // of the first finding; see docs/report.md
  double score = 0;                       // its, or the largest there is
  // The smallest and the largest limit of a floating tensor: a larger error is found.
  double smallest_limit = 0, largest_limit = 0;
  std::uint64_t compared = 0, expected = 0;
  std::string json, text, junit;  // the documents; "" when there are none
  bool applies = true;            // false: it cannot be made, and its verdict does not count

  [[nodiscard]] std::string place() const;  // "`embedding` (forward, output.0)"
  // Something is there or is not, rather than computed wrongly in a place.
  [[nodiscard]] bool structural() const;
};

// From the files that a comparison step left.
[[nodiscard]] Comparison read_comparison(const std::vector<std::filesystem::path>& outputs);
[[nodiscard]] Comparison no_comparison(const std::string& why);
// For programs that are not fed.
[[nodiscard]] Comparison not_applicable(const std::string& why);

struct CandidateResult {
  std::string name;
  std::filesystem::path folder;
  Comparison local;
  Comparison end_to_end;
  std::vector<std::string> commands;  // for a shell, reference's included

  [[nodiscard]] Verdict verdict() const;
  // The one that says more: local before end to end.
  [[nodiscard]] const Comparison& decisive() const;
  [[nodiscard]] bool decided_locally() const { return &decisive() == &local; }
};

}  // namespace ttrace
