// SPDX-License-Identifier: Apache-2.0
// The results of a check as traincheck-check leaves them: FOLDER/invariants.json and, in
// FOLDER/<name of the trace>/, failed.log, passed.log, not_triggered.log, violations_summary.json.
#pragma once

#include <filesystem>
#include <span>

#include "invariant/outcome.hpp"

namespace ttrace::invariant {

struct ResultPaths {
  std::filesystem::path folder;      // is made
  std::filesystem::path trace;       // gives its name
  std::filesystem::path invariants;  // is copied
};

// Of an invariant that failed, failed.log has the first violation. Throws Trouble.
void write_results(const ResultPaths& paths, Records& records, std::span<const Outcome> outcomes);

}  // namespace ttrace::invariant
