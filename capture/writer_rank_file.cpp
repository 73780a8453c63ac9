// SPDX-License-Identifier: Apache-2.0
// See writer_rank_file.hpp.
#include "capture/writer_rank_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "capture/writer_claim.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {

using nlohmann::json;

namespace {

constexpr std::int64_t kSaveEveryMs = 250;

std::int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

void merge_into(json& target, const json& update) {
  if (!target.is_object() || !update.is_object()) {
    target = update;
    return;
  }
  for (const auto& [name, value] : update.items()) merge_into(target[name], value);
}

}  // namespace

struct RankFile::Content {
  json told = json::object();  // by the rank, through ttrace_set
  json own = json::object();   // what only the writer may say
  json events = json::array();
};

RankFile::RankFile(std::filesystem::path directory, const RankIdentity& identity)
    : directory_(std::move(directory)), content_(std::make_unique<Content>()) {
  content_->told["world_size"] = identity.world_size;
  content_->own = {{"format", "ttrace-rank"}, {"version", 1},          {"run_id", identity.run_id},
                   {"rank", identity.rank},   {"host", host_name()},   {"pid", identity.pid},
                   {"degraded", false},       {"writer_pid", getpid()}};
}

RankFile::RankFile(std::filesystem::path directory)
    : directory_(std::move(directory)), content_(std::make_unique<Content>()) {
  const std::filesystem::path path = directory_ / "rank.json";
  try {
    std::ifstream file(path);
    content_->told = json::parse(file);
    content_->events = content_->told.at("events");
    content_->own["degraded"] = content_->told.at("degraded");
    records_ = content_->told.at("records").get<std::uint64_t>();
    collectives_ = content_->told.value("collectives", std::uint64_t{0});
    bytes_ = content_->told.at("bytes").get<std::uint64_t>();
    lost_ = content_->told.at("lost").get<std::uint64_t>();
  } catch (const json::exception& error) {
    throw Trouble("read", path.string(), error.what());
  }
}

RankFile::~RankFile() = default;

void RankFile::merge(std::string_view text) {
  const json update = json::parse(text, nullptr, false);
  if (!update.is_object()) {
    add_event("error", "ttrace_set",
              "the text is no JSON object: " + std::string(text.substr(0, 60)));
    degrade();
    return;
  }
  merge_into(content_->told, update);
  const auto degraded = update.find("degraded");
  if (degraded != update.end() && *degraded == true) degrade();
  changed_ = true;
}

void RankFile::add_event(std::string_view what, std::string_view where, std::string_view why) {
  changed_ = true;
  for (json& event : content_->events) {
    if (event["what"] == what && event["where"] == where && event["why"] == why) {
      event["count"] = event["count"].get<std::uint64_t>() + 1;
      return;
    }
  }
  content_->events.push_back({{"what", what}, {"where", where}, {"why", why}, {"count", 1}});
}

void RankFile::degrade() {
  content_->own["degraded"] = true;
  changed_ = true;
}

void RankFile::tell_running(const std::vector<RunningCall>& calls) {
  json& running = content_->own["running"] = json::array();
  for (const RunningCall& call : calls) {
    running.push_back({{"group", call.group},
                       {"member", call.member},
                       {"sequence", call.sequence},
                       {"seconds", call.seconds}});
  }
  changed_ = true;
}

void RankFile::count(std::uint64_t records, std::uint64_t collectives, std::uint64_t bytes) {
  records_ += records;
  collectives_ += collectives;
  bytes_ += bytes;
  changed_ = true;
}

void RankFile::count_lost(std::uint64_t records) {
  lost_ += records;
  changed_ = true;
}

std::string RankFile::text() const {
  json all = content_->told;
  all.update(content_->own);
  all["events"] = content_->events;
  all["records"] = records_;
  if (collectives_ != 0) all["collectives"] = collectives_;
  all["bytes"] = bytes_;
  all["lost"] = lost_;
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void RankFile::save() {
  absorb_refusals();
  saved_at_ms_ = now_ms();
  changed_ = false;
  try {
    replace_file(directory_ / "rank.json", text());
    save_failed_ = false;
  } catch (const Trouble& trouble) {
    changed_ = true;
    if (!std::exchange(save_failed_, true)) log(trouble.what());
  }
}

void RankFile::save_if_changed() {
  if (changed_ && now_ms() - saved_at_ms_ >= kSaveEveryMs) save();
}

void RankFile::finish() {
  content_->own.erase("writer_pid");
  save();
}

void RankFile::absorb_refusals() {
  for (const std::string& why : take_refusals(directory_)) {
    add_event("refused", "second process of this rank", why);
    degrade();
  }
}

void RankFile::log(std::string_view text) {
  const std::string line = utc_now() + " " + std::string(text) + "\n";
  const std::filesystem::path path = directory_ / "writer.log";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  if (::write(fd, line.data(), line.size()) < 0) {
    // The disk is full: there is no better place to say so than rank.json, which has it as an
    // event.
  }
  close(fd);
}

}  // namespace ttrace
