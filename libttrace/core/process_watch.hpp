// SPDX-License-Identifier: Apache-2.0
// Tells whether a process that is not our child still runs. A pidfd cannot be fooled by a reused
// process id, and reports a process that nobody has reaped yet as dead; kill(pid, 0), for kernels
// and sandboxes without pidfd, can do neither and is only the fallback.
#pragma once

#include <sys/types.h>

namespace ttrace {

class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t pid);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&&) = delete;

  [[nodiscard]] bool dead() const;

 private:
  pid_t pid_;
  int fd_ = -1;
  bool gone_ = false;  // it was when we first looked
};

}  // namespace ttrace
