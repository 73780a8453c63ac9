// SPDX-License-Identifier: Apache-2.0
// One process owns a rank's directory, for ever: a second one with the same rank (a job started
// twice, a launcher whose rank variable is unknown here) must not touch the first one's files. The
// lock is an flock on the directory itself: it needs no file and ends with its holder. A refused
// process leaves a note, refused.PID, which the owner turns into an event of rank.json.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {

class RankClaim {
 public:
  // Creates the directory where needed. Throws Trouble when that fails.
  explicit RankClaim(const std::filesystem::path& directory);
  ~RankClaim();
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;

  [[nodiscard]] bool locked() const { return locked_; }  // no other writer lives here
  [[nodiscard]] bool used() const { return used_; }      // an earlier writer left its files

 private:
  int fd_;
  bool locked_ = false;
  bool used_ = false;
};

void leave_refusal(const std::filesystem::path& directory, pid_t pid, const std::string& why);
// Reads and removes the notes.
[[nodiscard]] std::vector<std::string> take_refusals(const std::filesystem::path& directory);

}  // namespace ttrace
