// SPDX-License-Identifier: Apache-2.0
// rank.json: who this rank is, what it told about itself, and why anything is missing. Kept in
// memory and written out whole; equal events are counted, not repeated, so an error in a loop stays
// small.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libttrace/core/collective.hpp"

namespace ttrace {

struct RankIdentity {
  std::string run_id;
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  pid_t pid = 0;  // of the traced process
};

class RankFile {
 public:
  RankFile(std::filesystem::path directory, const RankIdentity& identity);
  // The rank.json that a writer left, to add an event to it. Throws Trouble when it is unreadable.
  explicit RankFile(std::filesystem::path directory);
  ~RankFile();
  RankFile(const RankFile&) = delete;
  RankFile& operator=(const RankFile&) = delete;

  // Objects merge recursively, other values replace. Text that is no JSON object is an event.
  void merge(std::string_view json);
  void add_event(std::string_view what, std::string_view where, std::string_view why);
  void degrade();
  // Calls that had not ended when the rank did.
  void tell_running(const std::vector<RunningCall>& calls);
  void count(std::uint64_t records, std::uint64_t collectives, std::uint64_t bytes);
  void count_lost(std::uint64_t records);
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

  // Never throw: a rank.json that cannot be written is a line in the log, once.
  void save();
  void save_if_changed();  // at most a few times a second
  void finish();           // without writer_pid

  // Where the writer complains, writer.log; created by the first complaint.
  void log(std::string_view text);

 private:
  struct Content;
  [[nodiscard]] std::string text() const;
  void absorb_refusals();

  std::filesystem::path directory_;
  std::unique_ptr<Content> content_;
  std::uint64_t records_ = 0;
  std::uint64_t collectives_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t lost_ = 0;
  bool changed_ = true;
  bool save_failed_ = false;
  std::int64_t saved_at_ms_ = 0;
};

}  // namespace ttrace
