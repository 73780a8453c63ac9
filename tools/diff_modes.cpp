// SPDX-License-Identifier: Apache-2.0
// See diff_modes.hpp.
#include "tools/diff_modes.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libttrace/core/trouble.hpp"
#include "tools/fed.hpp"

namespace ttrace {
namespace {

void require_fed(const Trace& replay) {
  const std::optional<std::int32_t> rank = unfed_rank(replay);
  if (!rank) return;
  throw Trouble("compare", replay.path().string(),
                "is called a replay, but rank " + std::to_string(*rank) +
                    " was fed with nothing: the pack is not for this command, or it is a C or C++ "
                    "program that does not call ttrace_feed");
}

void require_replay_of(const Trace& replay, const Trace& candidate, const std::string& option) {
  const std::optional<std::string> of = replayed_run(replay);
  if (of && *of == candidate.run_id()) return require_fed(replay);
  throw Trouble(option, replay.path().string(),
                (of ? "is a replay of another run than " : "is no replay of ") +
                    candidate.path().string() +
                    "; make it with ttrace-merge --pack and ttrace-capture --replay");
}

// A limit is what noise does to this reference; of another it says nothing.
void read_table(const std::string& path, ReadMode mode, OpenTraces& traces) {
  traces.limits = read_limits(path);
  const LimitsTable& table = *traces.limits;
  if (traces.local || table.reference_run_id.empty()) return;
  if (table.reference_run_id != traces.reference.run_id()) {
    throw Trouble("--limits", path,
                  "was made with another reference, " + table.reference + ", than " +
                      traces.reference.path().string() + "; make it again with ttrace-tolerance");
  }
  for (const PerturbedRun& run : table.runs) {
    std::error_code error;
    if (!std::filesystem::is_directory(run.path, error)) continue;
    Trace trace = Trace::open(run.path, mode);
    if (trace.run_id() == run.run_id) traces.perturbed.push_back(std::move(trace));
  }
}

}  // namespace

std::optional<std::string> replayed_run(const Trace& trace) {
  const nlohmann::json document = nlohmann::json::parse(trace.json(), nullptr, false);
  const auto place = nlohmann::json::json_pointer("/options/replay/run_id");
  if (!document.is_object() || !document.contains(place)) return std::nullopt;
  const nlohmann::json& run = document.at(place);
  return run.is_string() ? std::optional(run.get<std::string>()) : std::nullopt;
}

OpenTraces open_traces(const DiffTraces& paths) {
  OpenTraces traces{Trace::open(paths.reference, paths.mode),
                    Trace::open(paths.candidate, paths.mode),
                    std::nullopt,
                    false,
                    {},
                    {}};
  const auto fed = replayed_run(traces.candidate);
  traces.local = fed && *fed == traces.reference.run_id();  // the candidate's command was fed
  if (traces.local) require_fed(traces.candidate);
  if (replayed_run(traces.reference)) {
    require_replay_of(traces.reference, traces.candidate, "compare");
    traces.local = true;
  }
  if (!paths.limits.empty()) read_table(paths.limits, paths.mode, traces);
  if (paths.high.empty()) return traces;
  if (!replayed_run(traces.reference)) {
    throw Trouble("--high", paths.high,
                  "needs a replay in the run's own precision as the first trace");
  }
  traces.high.emplace(Trace::open(paths.high, paths.mode));
  require_replay_of(*traces.high, traces.candidate, "--high");
  return traces;
}

}  // namespace ttrace
