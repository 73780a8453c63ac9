// SPDX-License-Identifier: Apache-2.0
// "This function leads to that one, that one is covered by this one": what the two relations on the
// order of calls share.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

struct Timed {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Row pre = kNoRow;
};

// One function's calls on one thread, by begin.
struct Track {
  std::vector<Timed> calls;
  std::int64_t first_end = 0;
  std::int64_t last_begin = 0;
  std::int64_t last_end = 0;
};

// How often a function's records follow each other at most, over all records as they were read.
[[nodiscard]] std::unordered_map<Name, std::uint32_t> longest_runs(const View& view);

class OrderIndex {
 public:
  explicit OrderIndex(Context& context);

  struct ThreadTracks {
    std::unordered_map<Name, Track> tracks;
    std::unordered_set<Name> with_partner;  // functions that share the thread with another one
    [[nodiscard]] const Track* find(Name function) const;
    // Whether both occur and do not always overlap.
    [[nodiscard]] bool share(Name a, Name b) const;
  };

  [[nodiscard]] const std::vector<ThreadTracks>& threads() const { return threads_; }
  [[nodiscard]] const std::vector<Name>& functions() const { return functions_; }
  [[nodiscard]] bool knows(Name function) const { return known_.contains(function); }

 private:
  std::vector<ThreadTracks> threads_;
  std::vector<Name> functions_;  // in the order of rows
  std::unordered_set<Name> known_;
};

[[nodiscard]] const OrderIndex& order_of(Context& context);

// Moves `next` past the calls that are over; true when one lies within (after, before].
[[nodiscard]] bool find_between(const std::vector<Timed>& calls, std::size_t& next,
                                const std::int64_t* after, std::int64_t before);

void infer_cover(Context& context, const Sink& sink);
void collect_cover(Context& context, Hypothesis& hypothesis);
void check_cover(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string cover_text(const Values& values, const std::vector<Param>& params);

void infer_lead(Context& context, const Sink& sink);
void collect_lead(Context& context, Hypothesis& hypothesis);
void check_lead(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string lead_text(const Values& values, const std::vector<Param>& params);

}  // namespace ttrace::invariant::compat
