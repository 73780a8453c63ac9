// SPDX-License-Identifier: Apache-2.0
// The report of ttrace-verify for programs: JSON (docs/report.md), JUnit's XML, a shell script.
#pragma once

#include <string>
#include <vector>

#include "tools/verify_steps.hpp"
#include "tools/verify_text.hpp"

namespace ttrace {

[[nodiscard]] std::string run_as_json(const VerifyRun& run);
[[nodiscard]] std::string candidate_as_json(const CandidateResult& result);
// The testsuites of all comparisons; a suite's name begins with the candidate's and the mode.
[[nodiscard]] std::string run_as_junit(const VerifyRun& run);
[[nodiscard]] std::string candidate_as_junit(const CandidateResult& result);

// Runs the steps as they were run, and ends with ttrace-verify's exit code.
[[nodiscard]] std::string steps_as_script(const std::vector<Step>& steps, bool keep_going);

}  // namespace ttrace
