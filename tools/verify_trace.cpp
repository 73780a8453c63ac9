// SPDX-License-Identifier: Apache-2.0
// See verify_trace.hpp.
#include "tools/verify_trace.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libttrace/core/trouble.hpp"
#include "libttrace/file.hpp"
#include "libttrace/trace.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json described(const fs::path& trace) {
  std::error_code error;
  const fs::path file = trace / "trace.json";
  if (!fs::is_regular_file(file, error)) return json::object();
  const json found = json::parse(read_text(file), nullptr, false);
  return found.is_object() ? found : json::object();
}

}  // namespace

std::string run_id_of(const fs::path& trace) { return described(trace).value("run_id", ""); }

std::optional<int> command_exit_code(const fs::path& trace) {
  const json file = described(trace);
  if (!file.contains("exit_code") || !file["exit_code"].is_number_integer()) return std::nullopt;
  return file["exit_code"].get<int>();
}

bool is_complete(const fs::path& path) {
  try {
    const Trace trace = Trace::open(path);
    if (trace.ranks().size() != static_cast<std::size_t>(trace.world_size())) return false;
    for (const RankInfo& rank : trace.ranks()) {
      if (rank.degraded || rank.iterations != trace.iterations()) return false;
      for (const std::int64_t iteration : rank.iterations) {
        if (!trace.segment(rank.rank, iteration)->info().complete) return false;
      }
    }
    return true;
  } catch (const Trouble&) {
    return false;
  }
}

std::string low_precision_of(const fs::path& path) {
  const Trace trace = Trace::open(path);
  std::map<DType, std::size_t> counts;
  std::size_t all = 0;
  for (const RankInfo& rank : trace.ranks()) {
    const SegmentReader* segment = trace.segment(rank.rank, trace.iterations().front());
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      if (record.key.phase != Phase::forward || !is_floating(record.dtype)) continue;
      ++counts[record.dtype];
      ++all;
    }
  }
  for (const DType type : {DType::bfloat16, DType::float16}) {
    if (2 * counts[type] > all) return std::string(name_of(type));
  }
  return "";
}

}  // namespace ttrace
