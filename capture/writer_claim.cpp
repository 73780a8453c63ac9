// SPDX-License-Identifier: Apache-2.0
// See writer_claim.hpp.
#include "capture/writer_claim.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {

namespace fs = std::filesystem;

RankClaim::RankClaim(const fs::path& directory) : fd_(-1) {
  std::error_code error;
  fs::create_directories(directory, error);
  fd_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw Trouble("create", directory.string(), std::strerror(errno));
  // Some network file systems cannot lock a directory; there, only a finished rank is recognised.
  locked_ = flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  used_ = fs::exists(directory / "rank.json", error);
}

RankClaim::~RankClaim() { close(fd_); }

void leave_refusal(const fs::path& directory, pid_t pid, const std::string& why) {
  replace_file(directory / ("refused." + std::to_string(pid)), why);
}

std::vector<std::string> take_refusals(const fs::path& directory) {
  std::vector<std::string> reasons;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("refused.", 0) != 0 || name.find(".new.") != std::string::npos) continue;
    std::ifstream file(entry.path());
    reasons.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    fs::remove(entry.path(), error);
  }
  return reasons;
}

}  // namespace ttrace
