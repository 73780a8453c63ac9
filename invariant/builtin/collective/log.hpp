// SPDX-License-Identifier: Apache-2.0
// The collectives of a run, put together: what all members of a group called as one. Members are
// joined by group and sequence number, sends with receives in the order of the two ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "libttrace/core/collective.hpp"
#include "libttrace/trace.hpp"

namespace ttrace::builtin {

class Evidence;

// One member's part in it.
struct Call {
  std::int32_t rank = -1;
  std::int64_t iteration = -1;
  const SegmentReader* segment = nullptr;
  const Collective* row = nullptr;

  // nullptr: not recorded.
  [[nodiscard]] const Record* input() const;
  [[nodiscard]] const Record* output() const;
};

struct Group {
  std::string name;
  std::int32_t size = 0;
  std::vector<std::int32_t> ranks;  // by member number; -1: not known
  bool ambiguous = false;           // several groups of this name, which cannot be told apart

  [[nodiscard]] bool complete() const;
  // Of the members that are known.
  [[nodiscard]] std::vector<std::int32_t> known() const;
};

// Where a call of all members stands among those of its group: an iteration, 0 where numbers go on
// over all, and a number.
using Place = std::pair<std::int64_t, std::uint64_t>;

// The first and the last of those that a member made.
struct Span {
  Place first, last;
};

struct Joint {
  const Group* group = nullptr;
  std::uint64_t sequence = 0;   // of its first member
  Place place;                  // not of a send and its receive
  std::int64_t iteration = -1;  // the first that a member counts it to
  std::vector<Call> calls;      // by member number; of a send: the sender, then the receiver
  bool paired = false;          // a send and its receive
  bool certain = true;  // that these calls belong together: false where contents had to tell

  [[nodiscard]] const Call* of(std::int32_t member) const;
  [[nodiscard]] bool complete() const;  // no member is missing
  [[nodiscard]] std::vector<std::int32_t> ranks() const;
};

class CollectiveLog {
 public:
  explicit CollectiveLog(const Trace& trace);

  [[nodiscard]] bool empty() const { return calls_ == 0; }
  [[nodiscard]] const std::deque<Group>& groups() const { return groups_; }
  // In the order of their groups and sequence numbers.
  [[nodiscard]] const std::vector<Joint>& of(std::int64_t iteration) const;
  // All calls of a rank in an iteration, in its order.
  [[nodiscard]] std::vector<Call> calls(std::int32_t rank, std::int64_t iteration) const;
  // nullptr: the call was joined with nothing.
  [[nodiscard]] const Joint* joint_of(const Collective& row) const;
  [[nodiscard]] const Group* group_of(const Call& call) const;
  // Whether the rank's first call on the group is in the trace.
  [[nodiscard]] bool from_the_start(const Group& group, std::int32_t rank) const {
    return started_.count({&group, rank}) != 0;
  }
  // Without sends and receives; nullopt: the rank has none.
  [[nodiscard]] std::optional<Span> span_of(const Group& group, std::int32_t rank) const;
  // Sends and receives that have no other side in the trace.
  [[nodiscard]] const std::map<std::int64_t, std::uint64_t>& unpaired() const { return unpaired_; }

 private:
  void tell_groups_apart(const std::vector<Call>& calls);
  Group& group_for(const Call& call);

  const Trace& trace_;
  std::uint64_t calls_ = 0;
  std::deque<Group> groups_;
  std::map<std::pair<std::string, std::string>, Group*> by_name_;  // name, which of that name
  std::set<std::string> shared_names_;  // of several groups, whose members have equal numbers
  std::map<std::pair<std::string, std::int32_t>, std::string> which_;  // of a rank, where shared
  std::map<std::int64_t, std::vector<Joint>> joints_;                  // by iteration
  std::map<const Collective*, const Joint*> joint_of_;
  std::map<std::pair<const Group*, std::int32_t>, Span> spans_;
  std::set<std::pair<const Group*, std::int32_t>> started_;
  std::map<std::int64_t, std::uint64_t> unpaired_;
};

[[nodiscard]] bool is_send_or_receive(const Collective& row);
// The rank ended in it: it failed or had not ended when its iteration was cut short.
[[nodiscard]] bool stopped(const Evidence& evidence, const Call& call);
// Each element of what comes out is computed of one of each member: all_reduce, reduce,
// reduce_scatter.
[[nodiscard]] bool reduces(const Collective& row);
// Not of more than one member's: a sum counts each addend.
[[nodiscard]] bool sums(const Collective& row);
// How much an addend counts in what the sum puts out: 1 / size in a mean.
[[nodiscard]] double weight_of(const Collective& row);

// "all_reduce 12 of group dp (ranks 0, 2; along dp)": the axes where a mesh tells.
[[nodiscard]] std::string named(const Evidence& evidence, const Joint& joint);
// Of one member's part, with its own number.
[[nodiscard]] std::string named(const Evidence& evidence, const Call& call);
// A call by itself.
[[nodiscard]] Joint joint_with(const Group& group, const Call& call);
[[nodiscard]] std::string group_text(const Evidence& evidence, const Group& group);

}  // namespace ttrace::builtin
