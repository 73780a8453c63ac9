// SPDX-License-Identifier: Apache-2.0
// Collectives are told twice: when they begin and when they have ended. Both become one row of the
// segment, in the place of the first, so that one that never ends is there, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "libttrace/core/collective.hpp"
#include "libttrace/segment.hpp"

namespace ttrace {

// What became of a call that was told.
enum class Told : std::uint8_t {
  added,     // a row
  ended,     // a row has its end now
  late,      // the row is in an earlier segment: it stays there, without its end
  repeated,  // there is one of this group, member and number; this one is not in the file
};

class Calls {
 public:
  // What it refers to are the segment's records. Throws Trouble when it cannot be written.
  [[nodiscard]] Told tell(SegmentWriter& writer, Collective call);
  void next_segment();
  // Of this segment.
  [[nodiscard]] std::vector<RunningCall> running() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Name = std::tuple<std::string, std::int32_t, std::uint64_t>;  // group, member, sequence

  struct Known {
    std::size_t row = 0;
    std::uint64_t position = 0;
    std::int64_t input = kNotRecorded;
    Clock::time_point begun;
    bool ended = false;
  };

  std::map<Name, Known> known_;  // of this segment
  std::set<Name> left_;          // begun in an earlier one, and not ended there
};

}  // namespace ttrace
