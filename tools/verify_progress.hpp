// SPDX-License-Identifier: Apache-2.0
// One line a step on stderr, "[2/7] tp2: capture  19.9 s"; on a terminal it counts the seconds
// while the step runs.
#pragma once

#include <chrono>
#include <string>

namespace ttrace {

class StepLine {
 public:
  StepLine(std::size_t number, std::size_t count, const std::string& title, bool quiet);
  void tick();
  // "19.9 s" and, after it, `remark`; without remark only the time.
  void finish(const std::string& remark = "");
  void finish_cached();

 private:
  [[nodiscard]] double seconds() const;

  std::string head_;
  bool shown_;
  bool terminal_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = started_;
};

// The last lines of a log, indented, on stderr.
void print_end_of(const std::string& log, std::size_t lines);

}  // namespace ttrace
