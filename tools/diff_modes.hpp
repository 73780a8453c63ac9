// SPDX-License-Identifier: Apache-2.0
// Which comparison two traces call for: a trace that was made by a replay says so, and of what.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diff/compare.hpp"
#include "libttrace/trace.hpp"
#include "tolerance/table.hpp"

namespace ttrace {

struct DiffTraces {
  std::string reference;
  std::string candidate;
  std::string high;    // "": none
  std::string limits;  // "": none; a file that ttrace-tolerance wrote
  ReadMode mode = ReadMode::automatic;
};

// The traces of a comparison, open.
struct OpenTraces {
  Trace reference;
  Trace candidate;
  std::optional<Trace> high;
  bool local = false;  // one was made by feeding its command with the other's tensors
  std::optional<LimitsTable> limits;
  std::vector<Trace> perturbed;  // those of the limits' runs that are still there
};

// Throws Trouble when a replay is one of another run, or stands on the wrong side.
[[nodiscard]] OpenTraces open_traces(const DiffTraces& paths);

// The run whose tensors a replay was fed with; nullopt when it is no replay.
[[nodiscard]] std::optional<std::string> replayed_run(const Trace& trace);

}  // namespace ttrace
