// SPDX-License-Identifier: Apache-2.0
// The trace directory as the launcher sees it: prepared before the command starts, watched while
// this node's writers finish, summed up at the end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/capture_child.hpp"
#include "tools/capture_options.hpp"

namespace ttrace {

// Makes the directory ready and returns the run id. Throws Trouble when there is something in it
// that must not be lost. With --join, or when a launcher started us as any but its first process,
// waits for the directory that the first one makes.
[[nodiscard]] std::string prepare_trace(const CaptureOptions& options);
[[nodiscard]] bool joins(const CaptureOptions& options);

void write_trace_file(const CaptureOptions& options, const std::string& run_id,
                      const std::string& json);
void finish_trace_file(const CaptureOptions& options, int exit_code);

// A rank.json.
struct RankSummary {
  std::int32_t rank = 0;
  std::string host;
  std::optional<pid_t> writer;  // while it lives
  std::uint64_t records = 0;
  std::uint64_t collectives = 0;
  std::uint64_t bytes = 0;
  std::uint64_t lost = 0;
  bool degraded = false;
  std::uint64_t fed = 0;  // tensors that a replay overwrote
  std::vector<std::string> events;
  std::map<std::string, std::uint64_t> estimate;  // bytes by phase
  std::uint64_t segments = 0;
  std::uint64_t event_bytes = 0;
};
[[nodiscard]] std::vector<RankSummary> read_ranks(const std::filesystem::path& trace);

// Returns when no writer of this node lives, when those left make no progress, or at a signal.
void wait_for_writers(const std::filesystem::path& trace, const SignalGuard& signals);

}  // namespace ttrace
