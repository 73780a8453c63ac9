// SPDX-License-Identifier: Apache-2.0
// What the user asked ttrace-capture for, and how it travels to the traced processes: everything is
// an environment variable, because that is all that launchers and job systems pass on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/capture_parts.hpp"

namespace ttrace {

struct CaptureOptions {
  std::filesystem::path output = "ttrace-out";
  bool overwrite = false;
  bool join = false;
  std::string what = "outputs";
  std::vector<std::string> filters;
  std::string iterations = "0";
  std::string ranks;        // "": all
  std::string init_from;    // "", a trace, or seed:N
  std::string layout;       // "", or a file of layout rules
  std::string replay;       // "", or a pack (libttrace/pack.hpp)
  std::string replay_json;  // what that pack says of itself
  std::optional<std::uint64_t> perturb;
  bool estimate = false;
  bool events = false;     // calls and changes of state instead of tensors
  std::string invariants;  // "", or a file: only events that it needs
  std::string comm;        // "", metadata, hash, full: what is recorded of collectives
  std::string ring = "64M";
  bool print_environment = false;
  bool quiet = false;
  bool verbose = false;
  std::vector<std::string> command;
};

// Name and value; set in this order.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Reads what --replay's pack says of itself; `all_iterations`: capture those that it has.
void read_replay(CaptureOptions& options, bool all_iterations);

// Throws Trouble that names the option, before anything is touched.
void check_options(const CaptureOptions& options);

// The JSON object of TTRACE_OPTIONS, which trace.json repeats; `init_pack` is the file that stands
// for the trace of --init-from.
[[nodiscard]] std::string options_json(const CaptureOptions& options,
                                       const std::filesystem::path& init_pack);
[[nodiscard]] Environment capture_environment(const CaptureOptions& options,
                                              const CaptureParts& parts, const std::string& run_id,
                                              const std::string& options_text);
// For a shell: `export NAME='value'`, one a line.
[[nodiscard]] std::string export_lines(const Environment& environment);

}  // namespace ttrace
