// SPDX-License-Identifier: Apache-2.0
// See writer_trace_file.hpp.
#include "capture/writer_trace_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {

std::string settle_run_id(const std::filesystem::path& trace, const std::string& wanted) {
  const std::filesystem::path path = trace / "trace.json";
  std::error_code error;
  std::filesystem::create_directories(trace, error);
  if (!std::filesystem::exists(path, error)) {
    const std::string run_id = wanted.empty() ? make_run_id() : wanted;
    const nlohmann::json fresh = {{"format", "ttrace-trace"},
                                  {"version", 1},
                                  {"run_id", run_id},
                                  {"started", utc_now()},
                                  {"versions", {{"ttrace", TTRACE_VERSION}}}};
    if (create_file(path, fresh.dump(1) + "\n")) return run_id;  // else another rank was faster
  }
  if (!wanted.empty()) return wanted;
  std::ifstream file(path);
  const nlohmann::json found = nlohmann::json::parse(file, nullptr, false);
  if (found.is_object() && found.contains("run_id")) return found["run_id"].get<std::string>();
  throw Trouble("read", path.string(), "has no run_id, is this a trace?");
}

}  // namespace ttrace
