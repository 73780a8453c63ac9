// SPDX-License-Identifier: Apache-2.0
// A collective that has begun ends, for all members come to it. Where a run hangs, or ends in one,
// those who came wait for one who did not; that one may itself wait in another group. At the end of
// the chain is a rank that waits for nobody, or all stand in a ring.
#include <algorithm>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

// Healthy runs that are killed from outside are in some collective, but not in one for so long.
constexpr double kLongSeconds = 60;
constexpr std::size_t kShownCalls = 4;

using Ranks = std::vector<std::int32_t>;

// A call in which some members' runs ended.
struct Stuck {
  Joint joint;
  Ranks absent;  // members that did not come, as far as the trace tells
};

Ranks ranks_with(const Evidence& evidence, const Joint& joint, std::uint32_t flag) {
  Ranks ranks;
  for (const Call& call : joint.calls) {
    if (stopped(evidence, call) && (call.row->flags & flag) != 0) ranks.push_back(call.rank);
  }
  return ranks;
}

// The longest time that a member was in it, as far as it is known.
double seconds_in(const Evidence& evidence, const Joint& joint) {
  double longest = 0;
  for (const Call& call : joint.calls) {
    const RankInfo* info = evidence.rank(call.rank);
    if (info == nullptr) continue;
    for (const RunningCall& running : info->running) {
      const bool same = running.group == call.row->group && running.member == call.row->member &&
                        running.sequence == call.row->sequence;
      if (same) longest = std::max(longest, running.seconds);
    }
  }
  return longest;
}

std::string called_last(const Evidence& evidence, std::int32_t rank) {
  const CollectiveLog& log = evidence.collectives();
  const std::vector<std::int64_t>& iterations = evidence.rank(rank)->iterations;
  for (auto iteration = iterations.rbegin(); iteration != iterations.rend(); ++iteration) {
    const std::vector<Call> calls = log.calls(rank, *iteration);
    if (calls.empty()) continue;
    return named(evidence, calls.back()) + ", iteration " + std::to_string(*iteration);
  }
  return "nothing";
}

std::string ended_by(const Evidence& evidence, std::int32_t rank) {
  const std::int64_t last = evidence.rank(rank)->iterations.back();
  const std::string how = evidence.cut_short(rank, last);
  const std::string where = "iteration " + std::to_string(last);
  if (!how.empty()) return "in " + where + ": " + how;
  const std::string exception = evidence.exception_in(rank, last);
  return exception.empty() ? "its recording goes to the end of " + where
                           : "after " + where + ": " + exception;
}

// Not by somebody who stopped the run, as far as the trace tells.
bool ended_itself(const Evidence& evidence, std::int32_t rank) {
  const std::int64_t last = evidence.rank(rank)->iterations.back();
  const std::string exception = evidence.exception_in(rank, last);
  if (exception.empty()) return evidence.cut_short(rank, last).empty();
  return exception.rfind("KeyboardInterrupt", 0) != 0 &&
         exception.find("SignalException") == std::string::npos;
}

std::string inside_text(const Evidence& evidence, const Joint& joint) {
  const Ranks failed = ranks_with(evidence, joint, kCollectiveFailed);
  const Ranks inside = ranks_with(evidence, joint, kCollectiveBegun);
  if (failed.empty() && inside.empty()) return ranks_text(joint.ranks()) + " called it";
  std::string text = failed.empty() ? "" : "it failed on " + ranks_text(failed);
  if (!failed.empty() && !inside.empty()) text += ", ";
  return inside.empty() ? text : text + ranks_text(inside) + " ended in it";
}

class Ended final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const Joint& joint : log.of(iteration)) look_at_joint(evidence, joint, outcome);
    for (const RankInfo& info : evidence.trace().ranks()) {
      for (const Call& call : log.calls(info.rank, iteration)) {
        const Group* group = log.group_of(call);
        const bool alone = log.joint_of(*call.row) == nullptr && group != nullptr;
        if (alone && stopped(evidence, call)) add_single(evidence, *group, call);
      }
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    for (std::size_t i = 0; i < stuck_.size(); ++i) {
      for (const Call& call : stuck_[i].joint.calls) remember_where(evidence, i, call);
    }
    std::map<Ranks, std::vector<std::size_t>> missed;  // by those who never came
    std::set<std::vector<std::size_t>> rings;
    for (std::size_t i = 0; i < stuck_.size(); ++i) {
      std::vector<std::size_t> last = follow(i);
      if (last.empty()) continue;
      const Ranks idle = idle_of(stuck_[last.front()]);
      std::sort(last.begin(), last.end());
      if (idle.empty()) rings.insert(last);
      if (!idle.empty() && last.front() == i) missed[idle].push_back(i);
    }
    for (const auto& [idle, calls] : missed) outcome.report(describe_missed(evidence, idle, calls));
    for (const std::vector<std::size_t>& ring : rings) {
      outcome.report(describe_ring(evidence, ring));
    }
  }

 private:
  void look_at_joint(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    std::uint32_t flags = 0;
    bool in_it = false, cut = false;
    for (const Call& call : joint.calls) {
      flags |= call.row->flags;
      in_it = in_it || stopped(evidence, call);
      cut = cut || !evidence.cut_short(call.rank, call.iteration).empty();
    }
    // On a device a call has been queued when it returns, and may hang all the same.
    const Ranks absent = in_it || cut ? absent_of(evidence, joint) : Ranks{};
    if (in_it || !absent.empty()) stuck_.push_back({joint, absent});
    if (!absent.empty()) return;
    if (in_it) {
      ++outcome.unchecked["calls that the run ended in, and no member is missing"];
    } else if ((flags & kCollectiveFailed) != 0) {
      ++outcome.unchecked["calls that returned an error"];
    } else if ((flags & kCollectiveBegun) != 0) {
      ++outcome.unchecked["calls that were not seen to end in their iteration"];
    } else {
      ++outcome.compared["calls that ended"];
    }
  }

  // A send or receive without its other side.
  void add_single(const Evidence& evidence, const Group& group, const Call& call) {
    Stuck stuck{joint_with(group, call), {}};
    const auto peer = static_cast<std::size_t>(call.row->peer);
    const bool known = call.row->peer >= 0 && peer < group.ranks.size();
    if (known && is_whole(evidence, group.ranks[peer])) stuck.absent = {group.ranks[peer]};
    stuck_.push_back(std::move(stuck));
  }

  // All that it called until its end is in the trace.
  static bool is_whole(const Evidence& evidence, std::int32_t rank) {
    const RankInfo* info = evidence.rank(rank);
    if (info == nullptr || info->iterations.empty() || info->degraded) return false;
    const std::int64_t last = info->iterations.back();
    return evidence.trace().wanted(last + 1) || !evidence.cut_short(rank, last).empty();
  }

  static Ranks absent_of(const Evidence& evidence, const Joint& joint) {
    Ranks absent;
    if (joint.paired) return absent;
    for (std::int32_t member = 0; member < joint.group->size; ++member) {
      const std::int32_t rank = joint.group->ranks[static_cast<std::size_t>(member)];
      if (joint.of(member) != nullptr || !is_whole(evidence, rank)) continue;
      const CollectiveLog& log = evidence.collectives();
      const auto span = log.span_of(*joint.group, rank);
      const bool never = !span && log.from_the_start(*joint.group, rank);
      if (never || (span && span->last < joint.place)) absent.push_back(rank);
    }
    return absent;
  }

  // Of several calls that a rank has under way it is in the first one that it waits for itself.
  void remember_where(const Evidence& evidence, std::size_t number, const Call& call) {
    if (evidence.cut_short(call.rank, call.iteration).empty()) return;
    const bool waits = (call.row->flags & kCollectiveAsynchronous) == 0;
    const auto [place, fresh] = where_.emplace(call.rank, Where{number, waits, call.row});
    if (fresh) return;
    Where& where = place->second;
    const bool sooner = where.waits == waits && call.row < where.row;
    if (sooner || (waits && !where.waits)) where = {number, waits, call.row};
  }

  // Those that are in no call themselves.
  [[nodiscard]] Ranks idle_of(const Stuck& stuck) const {
    Ranks idle;
    std::copy_if(stuck.absent.begin(), stuck.absent.end(), std::back_inserter(idle),
                 [this](std::int32_t rank) { return where_.count(rank) == 0; });
    return idle;
  }

  // From a call on to where the members wait that it waits for: the last one, or the ring that they
  // make. Empty where nothing tells why the last one waits.
  [[nodiscard]] std::vector<std::size_t> follow(std::size_t start) const {
    std::vector<std::size_t> path{start};
    for (;;) {
      const Stuck& stuck = stuck_[path.back()];
      if (stuck.absent.empty()) return {};
      if (!idle_of(stuck).empty()) return {path.back()};
      const std::size_t next = where_.at(stuck.absent.front()).stuck;
      const auto seen = std::find(path.begin(), path.end(), next);
      if (seen != path.end()) return {seen, path.end()};
      path.push_back(next);
    }
  }

  [[nodiscard]] Violation describe_missed(const Evidence& evidence, const Ranks& idle,
                                          const std::vector<std::size_t>& calls) const {
    const Joint& first = stuck_[calls.front()].joint;
    Violation violation = started(first);
    violation.ranks = idle;
    violation.what = named(evidence, first) + ": " + inside_text(evidence, first) + ", " +
                     ranks_text(idle) +
                     (first.paired ? " never called the other side" : " never called it");
    bool sure = false;
    for (const std::int32_t rank : idle) {
      const std::string name = "rank " + std::to_string(rank);
      violation.evidence.emplace_back(name + " called last", called_last(evidence, rank));
      violation.evidence.emplace_back(name + " ended", ended_by(evidence, rank));
      sure = sure || ended_itself(evidence, rank);
    }
    double seconds = 0;
    for (const std::size_t number : calls) {
      const Joint& joint = stuck_[number].joint;
      seconds = std::max(seconds, seconds_in(evidence, joint));
      sure = sure || !ranks_with(evidence, joint, kCollectiveFailed).empty();
    }
    for (std::size_t i = 1; i < std::min(calls.size(), kShownCalls); ++i) {
      const Joint& joint = stuck_[calls[i]].joint;
      violation.evidence.emplace_back("nor " + std::to_string(i),
                                      named(evidence, joint) + ": " + inside_text(evidence, joint));
    }
    if (calls.size() > kShownCalls) {
      violation.evidence.emplace_back("nor", counted(calls.size() - kShownCalls, "further call"));
    }
    if (seconds > 0) violation.evidence.emplace_back("waited", printed(seconds) + " s");
    sure = sure || seconds >= kLongSeconds;
    violation.certainty = sure ? Certainty::likely : Certainty::possible;
    violation.advice = "what keeps " + ranks_text(idle) +
                       " from it: an exception, a branch, a loop of another length, or a wait for "
                       "something else (its stack tells)";
    return violation;
  }

  [[nodiscard]] Violation describe_ring(const Evidence& evidence,
                                        const std::vector<std::size_t>& calls) const {
    Violation violation = started(stuck_[calls.front()].joint);
    violation.certainty = Certainty::likely;
    violation.what = "ranks wait for each other in different collectives";
    for (const std::size_t number : calls) {
      const Stuck& stuck = stuck_[number];
      Ranks inside;
      for (const auto& [rank, where] : where_) {
        if (where.stuck == number) inside.push_back(rank);
      }
      violation.ranks.insert(violation.ranks.end(), inside.begin(), inside.end());
      violation.evidence.emplace_back(
          ranks_text(inside) + " ended in",
          named(evidence, stuck.joint) + (stuck.joint.paired ? ", whose other side " : ", which ") +
              ranks_text(stuck.absent) + " never called");
    }
    std::sort(violation.ranks.begin(), violation.ranks.end());
    violation.advice = "the order in which ranks call collectives of different groups";
    return violation;
  }

  struct Where {
    std::size_t stuck = 0;
    bool waits = false;
    const Collective* row = nullptr;  // of the last iteration: later calls come behind it
  };

  std::vector<Stuck> stuck_;
  std::map<std::int32_t, Where> where_;  // by rank
};

}  // namespace

std::unique_ptr<Check> make_ended() { return std::make_unique<Ended>(); }

}  // namespace ttrace::builtin
