// SPDX-License-Identifier: Apache-2.0
// Collectives are joined by their sequence numbers, which count from the creation of the group. A
// group that also carries sends and receives counts those on some members only: there the n-th
// collective of a member goes with the n-th of the others, from the group's first call on where
// that was recorded, else in each iteration. Sends go with receives in the order of the two ranks.
// A recording that begins later may lack the first of one side: then contents say how they lie.
#include "invariant/builtin/collective/log_join.hpp"

#include <algorithm>
#include <limits>

namespace ttrace::builtin {
namespace {

constexpr std::int64_t kFarthest = 8;  // calls by which two recordings may begin apart

void sort_calls(std::vector<Call>& calls) {
  std::sort(calls.begin(), calls.end(), [](const Call& left, const Call& right) {
    if (left.rank != right.rank) return left.rank < right.rank;
    return left.row->sequence < right.row->sequence;
  });
}

// Whether the recording of each member has the first call on the group.
bool from_the_start(const std::vector<Call>& calls) {
  std::int32_t rank = -1;
  for (const Call& call : calls) {  // sorted
    if (call.rank != rank && call.row->sequence != 0) return false;
    rank = call.rank;
  }
  return true;
}

std::map<Place, std::vector<Call>> places_of(const std::vector<Call>& calls, bool mixed,
                                             bool started) {
  std::map<Place, std::vector<Call>> places;
  std::map<std::pair<std::int32_t, std::int64_t>, std::uint64_t> counts;
  for (const Call& call : calls) {
    if (is_send_or_receive(*call.row)) continue;
    const std::int64_t part = mixed && !started ? call.iteration : 0;
    const std::uint64_t number = mixed ? counts[{call.rank, part}]++ : call.row->sequence;
    places[{part, number}].push_back(call);
  }
  return places;
}

void join_collectives(const Group& group, const std::vector<Call>& calls, bool started,
                      std::vector<Joint>& joints) {
  const bool mixed = std::any_of(calls.begin(), calls.end(),
                                 [](const Call& call) { return is_send_or_receive(*call.row); });
  for (auto& [place, members] : places_of(calls, mixed, started)) {
    Joint joint;
    joint.group = &group;
    joint.certain = !mixed || started;
    joint.place = place;
    joint.calls = std::move(members);
    std::sort(joint.calls.begin(), joint.calls.end(), [](const Call& left, const Call& right) {
      return left.row->member < right.row->member;
    });
    joint.sequence = joint.calls.front().row->sequence;
    joint.iteration = std::numeric_limits<std::int64_t>::max();
    for (const Call& call : joint.calls) {
      joint.iteration = std::min(joint.iteration, call.iteration);
    }
    joints.push_back(std::move(joint));
  }
}

bool same_content(const Call& send, const Call& receive) {
  const Record* sent = send.input();
  const Record* got = receive.output();
  return sent != nullptr && got != nullptr && sent->hash == got->hash && sent->bytes == got->bytes;
}

std::size_t agreeing(const std::vector<Call>& sends, const std::vector<Call>& receives,
                     std::int64_t shift) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const std::int64_t other = static_cast<std::int64_t>(i) + shift;
    if (other < 0 || other >= static_cast<std::int64_t>(receives.size())) continue;
    equal += same_content(sends[i], receives[static_cast<std::size_t>(other)]);
  }
  return equal;
}

// How many receives come before that of the first send; nullopt: nothing tells.
std::optional<std::int64_t> shift_between(const std::vector<Call>& sends,
                                          const std::vector<Call>& receives) {
  std::optional<std::int64_t> best;
  std::size_t most = 0;
  for (std::int64_t distance = 0; distance <= kFarthest; ++distance) {
    for (const std::int64_t shift : {distance, -distance}) {
      const std::size_t equal = agreeing(sends, receives, shift);
      if (equal <= most) continue;
      most = equal;
      best = shift;
    }
  }
  // One pair that agrees may be chance (zeros), and does not tell the others apart.
  return most * 2 > std::min(sends.size(), receives.size()) ? best : std::nullopt;
}

struct Line {
  std::vector<Call> sends, receives;  // of one sender and one receiver, in their order
};

bool alike(const Call& send, const Call& receive) {
  if (send.input() != nullptr && receive.output() != nullptr) return same_content(send, receive);
  return send.row->dtype == receive.row->dtype && send.row->count == receive.row->count;
}

// The receive of each send; -1: not known.
using Partners = std::vector<std::int64_t>;

Partners in_order(const Line& line, std::optional<std::int64_t> shift) {
  Partners partners(line.sends.size(), -1);
  for (std::size_t i = 0; shift && i < line.sends.size(); ++i) {
    const std::int64_t other = static_cast<std::int64_t>(i) + *shift;
    const bool there = other >= 0 && other < static_cast<std::int64_t>(line.receives.size());
    if (there) partners[i] = other;
  }
  return partners;
}

// Messages with tags may be received in another order: then all of them are there, elsewhere.
std::optional<Partners> in_another_order(const Line& line) {
  if (line.sends.size() != line.receives.size()) return std::nullopt;
  Partners partners;
  std::vector<bool> taken(line.receives.size());
  for (const Call& send : line.sends) {
    std::size_t other = 0;
    while (other < taken.size() && (taken[other] || !alike(send, line.receives[other]))) ++other;
    if (other == taken.size()) return std::nullopt;
    taken[other] = true;
    partners.push_back(static_cast<std::int64_t>(other));
  }
  return partners;
}

void join_line(const Group& group, const Line& line, bool started, Joined& joined) {
  Partners partners = in_order(
      line, started ? std::optional<std::int64_t>(0) : shift_between(line.sends, line.receives));
  bool certain = started;
  for (std::size_t i = 0; i < partners.size(); ++i) {
    const std::int64_t other = partners[i];
    if (other < 0 || alike(line.sends[i], line.receives[static_cast<std::size_t>(other)])) continue;
    if (const auto found = in_another_order(line)) {
      partners = *found;
      certain = false;
    }
    break;
  }
  std::vector<bool> taken(line.receives.size());
  for (std::size_t i = 0; i < line.sends.size(); ++i) {
    if (partners[i] < 0) {
      ++joined.unpaired[line.sends[i].iteration];
      continue;
    }
    const auto other = static_cast<std::size_t>(partners[i]);
    const Call& receive = line.receives[other];
    taken[other] = true;
    Joint joint;
    joint.group = &group;
    joint.sequence = line.sends[i].row->sequence;
    joint.iteration = std::min(line.sends[i].iteration, receive.iteration);
    joint.calls = {line.sends[i], receive};
    joint.paired = true;
    joint.certain = certain;
    joined.joints.push_back(std::move(joint));
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) ++joined.unpaired[line.receives[i].iteration];
  }
}

void join_pairs(const Group& group, const std::vector<Call>& calls, bool started, Joined& joined) {
  std::map<std::pair<std::int32_t, std::int32_t>, Line> lines;  // by sender and receiver
  for (const Call& call : calls) {
    const Collective& row = *call.row;
    if (row.function == "send") lines[{row.member, row.peer}].sends.push_back(call);
    if (row.function == "recv") lines[{row.peer, row.member}].receives.push_back(call);
  }
  for (const auto& [ends, line] : lines) {
    // Of a member that receives from anybody nothing says which sender is meant.
    if (lines.count({-1, ends.second}) == 0) {
      join_line(group, line, started, joined);
      continue;
    }
    for (const Call& call : line.sends) ++joined.unpaired[call.iteration];
    for (const Call& call : line.receives) ++joined.unpaired[call.iteration];
  }
}

}  // namespace

Joined join(const Group& group, std::vector<Call> calls) {
  Joined joined;
  sort_calls(calls);
  const bool started = from_the_start(calls);
  join_collectives(group, calls, started, joined.joints);
  join_pairs(group, calls, started, joined);
  return joined;
}

}  // namespace ttrace::builtin
