// SPDX-License-Identifier: Apache-2.0
// The report of ttrace-verify for a reader: the verdict in words, then ttrace-diff's own report.
#pragma once

#include <string>
#include <vector>

#include "tools/verify_options.hpp"
#include "tools/verify_result.hpp"

namespace ttrace {

struct VerifyRun {
  std::vector<CandidateResult> candidates;
  std::vector<std::string> reference_commands;
  std::string low_precision;  // of the reference's activations; "" when they are float32 or finer
  std::string trouble;        // why there are no candidates
  std::size_t cached = 0;     // steps that were not run again
};

// Of one candidate, with all that supports it; what OUT/NAME/report.txt holds.
[[nodiscard]] std::string candidate_as_text(const CandidateResult& result, const VerifyRun& run,
                                            const VerifyOptions& options, bool color);
// One line a candidate, and what holds for all.
[[nodiscard]] std::string table_as_text(const VerifyRun& run, const VerifyOptions& options,
                                        bool color);

}  // namespace ttrace
