// SPDX-License-Identifier: Apache-2.0
// Runs the traced command as a shell would, and stays out of its way: signals sent to us are passed
// on, its exit code is ours. A signal from the keyboard reaches the whole process group by itself
// and is not sent twice.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "tools/capture_options.hpp"

namespace ttrace {

inline constexpr int kNotFound = 127;
inline constexpr int kNotExecutable = 126;

// Blocks the signals that CommandRun handles; restores at the end.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  [[nodiscard]] const sigset_t& handled() const { return handled_; }
  [[nodiscard]] const sigset_t& before() const { return before_; }
  // The next signal within `limit`; 0: none came.
  [[nodiscard]] int wait(std::chrono::milliseconds limit, siginfo_t& info) const;

 private:
  sigset_t handled_{};
  sigset_t before_{};
};

// The exit code: the command's, 128 + signal when one killed it, 127 or 126 when it could not be
// started (said on stderr).
[[nodiscard]] int run_command(const std::vector<std::string>& command,
                              const Environment& environment, const SignalGuard& signals);

}  // namespace ttrace
