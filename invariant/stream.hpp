// SPDX-License-Identifier: Apache-2.0
// Hands records to a Tracker step by step: of each step one process after the other, of each
// process in the order of time. Neither the order of files and lines nor that of records of one
// time matters, and a trace that is still being written gives the same events as the whole one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "invariant/tracker.hpp"

namespace ttrace::invariant {

// A whole trace.
void replay(World& world, std::span<const Record> records, Tracker& tracker);

// A growing one. A step is handed on when every process has gone beyond it, or one of them far
// beyond; until then its records are kept, and no longer. The first step waits for processes that
// start later: until one is far beyond it.
class Stream {
 public:
  Stream(World& world, Tracker& tracker) : world_(world), tracker_(tracker) {}

  std::int64_t push(Record record);  // returns its step
  // Hands on what is complete; steps from `limit` on are known to go on.
  void advance(std::int64_t limit = INT64_MAX);
  void finish();  // and what is left

  // Records of steps that had been handed on: lost.
  [[nodiscard]] std::uint64_t late() const { return late_; }

 private:
  void hand_on(std::int64_t step);

  World& world_;
  Tracker& tracker_;
  std::map<std::int64_t, std::vector<Record>> steps_;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::int64_t> reached_;  // (process, file)
  std::int64_t done_ = INT64_MIN;
  std::int64_t first_ = INT64_MAX;  // the first step of all
  std::uint64_t late_ = 0;
};

}  // namespace ttrace::invariant
