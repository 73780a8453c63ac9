// SPDX-License-Identifier: Apache-2.0
// Runs one program of a step: no input, its output in files, and an end in time. It leads a process
// group of its own, so that what it started ends with it when the user interrupts or time is up.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/capture_child.hpp"

namespace ttrace {

struct LoggedCommand {
  std::vector<std::string> words;  // the first is a path
  std::filesystem::path log;       // standard error, and standard output unless it has its own file
  std::filesystem::path output;    // "": goes to the log
  std::chrono::seconds timeout{0};  // 0: none
};

struct Ended {
  int exit_code = 0;  // 128 + signal when one killed it
  bool timed_out = false;
  int signal = 0;  // that asked us to end, and was passed on
};

// `tick` is called about five times a second.
[[nodiscard]] Ended run_logged(const LoggedCommand& command, const SignalGuard& signals,
                               const std::function<void()>& tick);

}  // namespace ttrace
