// SPDX-License-Identifier: Apache-2.0
// See verify_progress.hpp.
#include "tools/verify_progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>

namespace ttrace {

StepLine::StepLine(std::size_t number, std::size_t count, const std::string& title, bool quiet)
    : shown_(!quiet), terminal_(!quiet && isatty(STDERR_FILENO) == 1) {
  constexpr std::size_t kWidth = 44;
  head_ = "[" + std::to_string(number) + "/" + std::to_string(count) + "] " + title;
  head_.resize(std::max(kWidth, head_.size()), ' ');
}

double StepLine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void StepLine::tick() {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now < next_) return;
  next_ = now + std::chrono::seconds(1);
  std::fprintf(stderr, "\r\033[K%s %7.0f s", head_.c_str(), seconds());
  std::fflush(stderr);
}

void StepLine::finish(const std::string& remark) {
  if (!shown_) return;
  std::fprintf(stderr, "%s%s %7.1f s%s%s\n", terminal_ ? "\r\033[K" : "", head_.c_str(), seconds(),
               remark.empty() ? "" : "  ", remark.c_str());
}

void StepLine::finish_cached() {
  if (shown_) std::fprintf(stderr, "%s%s    cached\n", terminal_ ? "\r\033[K" : "", head_.c_str());
}

void print_end_of(const std::string& log, std::size_t lines) {
  std::ifstream file(log, std::ios::binary);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line);
    if (last.size() > lines) last.pop_front();
  }
  if (last.empty()) return;
  std::fprintf(stderr, "the end of %s:\n", log.c_str());
  for (const std::string& line : last) std::fprintf(stderr, "  %s\n", line.c_str());
}

}  // namespace ttrace
