// SPDX-License-Identifier: Apache-2.0
// ttrace-check -i FILE: a trace of events against invariants that were learned.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "invariant/invariant.hpp"
#include "tools/outputs.hpp"

namespace ttrace {

struct CheckInvariantsOptions {
  std::string trace;
  std::vector<std::string> invariants;  // files
  std::string signatures;               // "": the one in the trace's folder, if any
  bool traincheck_compat = false;
  bool follow = false;       // the trace is still being written
  double idle_seconds = 30;  // without a new line: the run is over
  std::string output;        // folder for the files that TrainCheck's checker writes
  std::string json;          // "-": stdout
  std::string junit;
  std::size_t top = 5;
  bool quiet = false;
};

[[nodiscard]] OutputPaths paths_of(const CheckInvariantsOptions& options);

// Those of all files; what is none is noted. Throws Trouble.
[[nodiscard]] std::vector<invariant::Invariant> read_all_invariants(
    const CheckInvariantsOptions& options, invariant::Values& values);

// An exit code: kSame when none is violated, else kDiffer.
[[nodiscard]] int check_invariants(const CheckInvariantsOptions& options);

}  // namespace ttrace
