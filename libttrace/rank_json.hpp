// SPDX-License-Identifier: Apache-2.0
// trace.json and rank.json (docs/format.md) as values. Unknown members are ignored; a member of the
// wrong type is Trouble that names file and member. Only for trace.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "libttrace/core/intervals.hpp"
#include "libttrace/trace.hpp"

namespace ttrace {

struct TraceDocument {
  std::string run_id;
  bool logical = false;
  std::optional<Intervals> iterations;  // that were to be recorded; nullopt: all
};

struct RankDocument {
  RankInfo info;
  std::string run_id;
  std::string host;
  std::int64_t writer_pid = 0;  // 0: not known
};

// `file` is only for messages.
[[nodiscard]] TraceDocument parse_trace_json(const std::string& text,
                                             const std::filesystem::path& file);
[[nodiscard]] RankDocument parse_rank_json(const std::string& text,
                                           const std::filesystem::path& file);

}  // namespace ttrace
