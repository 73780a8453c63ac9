// SPDX-License-Identifier: Apache-2.0
// See trace_state.hpp.
#include "tools/trace_state.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

namespace ttrace {

TraceState trace_state(const std::filesystem::path& trace) {
  TraceState state;
  std::ifstream file(trace / "trace.json");
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (!document.is_object()) return state;
  state.known = true;
  state.finished = document.contains("finished");
  if (const auto code = document.find("exit_code");
      code != document.end() && code->is_number_integer()) {
    state.exit_code = code->get<int>();
  }
  const auto options = document.find("options");
  if (options == document.end() || !options->is_object()) return state;
  if (const auto chosen = options->find("invariants");
      chosen != options->end() && chosen->is_string()) {
    state.invariants = chosen->get<std::string>();
  }
  return state;
}

std::string early_end(const TraceState& state) {
  if (!state.known) return "";
  if (!state.finished) return "the run has not ended, or was killed with ttrace-capture";
  if (state.exit_code == 0) return "";
  return "the run ended with exit code " + std::to_string(state.exit_code);
}

}  // namespace ttrace
