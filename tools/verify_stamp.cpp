// SPDX-License-Identifier: Apache-2.0
// See verify_stamp.hpp.
#include "tools/verify_stamp.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "libttrace/file.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kStampVersion = 1;

json parse_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return nullptr;
  return json::parse(read_text(path), nullptr, false);
}

}  // namespace

std::optional<Stamp> read_stamp(const fs::path& path) {
  const json file = parse_file(path);
  if (!file.is_object() || file.value("format", "") != "ttrace-verify-stamp" ||
      file.value("version", 0) != kStampVersion) {
    return std::nullopt;
  }
  try {
    return Stamp{file.at("depends").get<Fingerprint>(), file.at("output").get<std::string>(),
                 file.at("id").get<std::string>(), file.at("exit_code").get<int>()};
  } catch (const json::exception&) {
    return std::nullopt;  // as if there were none: the step is done again
  }
}

void write_stamp(const fs::path& path, const Stamp& stamp) {
  const json file = {{"format", "ttrace-verify-stamp"},
                     {"version", kStampVersion},
                     {"depends", stamp.depends},
                     {"output", stamp.output},
                     {"id", stamp.id},
                     {"exit_code", stamp.exit_code}};
  replace_file(path, file.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

std::string trace_state(const fs::path& trace) {
  const json described = parse_file(trace / "trace.json");
  if (!described.is_object() || !described.contains("finished")) return "";
  Fingerprint parts = {{"trace.json", hash_of(described.dump())}};
  std::error_code error;
  for (const fs::directory_entry& rank : fs::directory_iterator(trace, error)) {
    if (!rank.is_directory(error)) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(rank.path(), error)) {
      const std::string name = file.path().lexically_relative(trace).string();
      const bool text = file.path().extension() == ".json";
      parts[name] =
          text ? hash_of(read_text(file.path())) : std::to_string(file.file_size(error)) + " bytes";
    }
  }
  return hash_of(json(parts).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string files_state(const std::vector<fs::path>& files) {
  std::string all;
  for (const fs::path& file : files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return "";
    all += file_fingerprint(file).begin()->second + "\n";
  }
  return hash_of(all);
}

}  // namespace ttrace
