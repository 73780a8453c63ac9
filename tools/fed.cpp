// SPDX-License-Identifier: Apache-2.0
// See fed.hpp.
#include "tools/fed.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "libttrace/trace_files.hpp"

namespace ttrace {

std::optional<std::int32_t> unfed_rank(const Trace& replay) {
  for (const RankInfo& rank : replay.ranks()) {
    std::ifstream file(replay.path() / rank_directory_name(rank.rank) / "rank.json");
    const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
    if (!document.is_object() || document.value("fed", 0) <= 0) return rank.rank;
  }
  return std::nullopt;
}

}  // namespace ttrace
