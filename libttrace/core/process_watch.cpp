// SPDX-License-Identifier: Apache-2.0
// See process_watch.hpp.
#include "libttrace/core/process_watch.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace ttrace {

ProcessWatch::ProcessWatch(pid_t pid) : pid_(pid) {
#ifdef SYS_pidfd_open
  fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  gone_ = fd_ < 0 && errno == ESRCH;
#endif
}

ProcessWatch::~ProcessWatch() {
  if (fd_ >= 0) close(fd_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : pid_(other.pid_), fd_(std::exchange(other.fd_, -1)), gone_(other.gone_) {}

bool ProcessWatch::dead() const {
  if (gone_) return true;
  if (fd_ < 0) return kill(pid_, 0) != 0 && errno == ESRCH;
  pollfd state{fd_, POLLIN, 0};
  return poll(&state, 1, 0) == 1;
}

}  // namespace ttrace
