// SPDX-License-Identifier: Apache-2.0
// What trace.json says of the run that wrote a trace.
#pragma once

#include <filesystem>
#include <string>

namespace ttrace {

struct TraceState {
  bool known = false;      // there is a trace.json
  bool finished = false;   // the command has ended
  int exit_code = 0;       // of the command
  std::string invariants;  // the file that chose what was recorded, or ""
};

[[nodiscard]] TraceState trace_state(const std::filesystem::path& trace);

// "the run ended with exit code 137"; empty when it ended well, or is not one of ours.
[[nodiscard]] std::string early_end(const TraceState& state);

}  // namespace ttrace
