// SPDX-License-Identifier: Apache-2.0
// All members of a group call the same collectives in the same order: function, reduction, root,
// type and count of the n-th call are equal on them, no member leaves a call out, and what is sent
// is received as such. Libraries mostly do not check it: they hang, or take one thing for another.
#include <algorithm>
#include <functional>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

using Print = std::function<std::string(const Collective&)>;
struct Attribute {
  const char* name;
  Print print;
};

bool has_root(const Collective& row) {
  return row.function == "broadcast" || row.function == "reduce" || row.function == "gather" ||
         row.function == "scatter";
}

bool has_splits(const Call& call) {
  return !call.row->input_splits.empty() || !call.row->output_splits.empty();
}

std::vector<Attribute> attributes_of(const Joint& joint) {
  const Collective& row = *joint.calls.front().row;
  std::vector<Attribute> attributes;
  if (!joint.paired) {
    attributes.push_back({"function", [](const Collective& one) { return one.function; }});
  }
  if (row.function == "barrier") return attributes;
  attributes.push_back({"reduction", [](const Collective& one) { return one.reduction; }});
  attributes.push_back(
      {"dtype", [](const Collective& one) { return std::string(name_of(one.dtype)); }});
  if (has_root(row)) {
    attributes.push_back(
        {"root", [](const Collective& one) { return "member " + std::to_string(one.peer); }});
  }
  if (std::none_of(joint.calls.begin(), joint.calls.end(), has_splits)) {
    attributes.push_back(
        {"count", [](const Collective& one) { return std::to_string(one.count) + " elements"; }});
  }
  return attributes;
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

// By value, the most frequent first.
std::vector<std::pair<std::string, std::vector<std::int32_t>>> opinions_on(
    const Joint& joint, const Attribute& attribute) {
  std::map<std::string, std::vector<std::int32_t>> by_value;
  for (const Call& call : joint.calls) by_value[attribute.print(*call.row)].push_back(call.rank);
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> opinions(by_value.begin(),
                                                                          by_value.end());
  std::stable_sort(opinions.begin(), opinions.end(), [](const auto& left, const auto& right) {
    return left.second.size() > right.second.size();
  });
  return opinions;
}

class Order final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const Group& group : log.groups()) {
      if (group.ambiguous) ++outcome.unchecked["several groups have one name: " + group.name];
    }
    for (const Joint& joint : log.of(iteration)) look_at_joint(evidence, joint, outcome);
    const auto unpaired = log.unpaired().find(iteration);
    if (unpaired != log.unpaired().end()) {
      outcome.unchecked["sends and receives whose other side is not known"] += unpaired->second;
    }
  }

  void finish(const Evidence& /*evidence*/, Outcome& outcome) override {
    for (Violation& violation : outcome.violations) {
      const auto more = further_.find(violation.evidence.front().second);
      if (more == further_.end() || more->second == 0) continue;
      violation.evidence.emplace_back("later calls of this group that do not fit either",
                                      std::to_string(more->second));
    }
  }

 private:
  void look_at_joint(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    bool last = false;  // the run ended in it
    for (const Call& call : joint.calls) last = last || stopped(evidence, call);
    const bool survived =
        !last && std::any_of(joint.calls.begin(), joint.calls.end(), [](const Call& call) {
          return (call.row->flags & kCollectiveFailed) != 0;
        });
    if (survived) {  // it was refused, and nothing was sent
      ++outcome.unchecked["calls that returned an error"];
      return;
    }
    if (!last && !joint.complete()) find_missing(evidence, joint, outcome);
    if (joint.calls.size() < 2) return;
    ++outcome.compared[joint.paired ? "sends with receives" : "calls of all members"];
    for (const Attribute& attribute : attributes_of(joint)) {
      const auto opinions = opinions_on(joint, attribute);
      if (opinions.size() < 2) continue;
      add(evidence, joint, describe(evidence, joint, attribute, opinions), outcome);
      return;
    }
  }

  // Once a group is out of step, all that follows is.
  void add(const Evidence& evidence, const Joint& joint, Violation violation, Outcome& outcome) {
    const std::string group = group_text(evidence, *joint.group);
    const auto [count, fresh] = further_.emplace(group, 0);
    if (!fresh) {
      ++count->second;
      return;
    }
    violation.evidence.insert(violation.evidence.begin(), {"group", group});
    outcome.report(std::move(violation));
  }

  template <class Opinions>
  static Violation describe(const Evidence& evidence, const Joint& joint,
                            const Attribute& attribute, const Opinions& opinions) {
    Violation violation = started(joint);
    const bool majority = opinions[0].second.size() > opinions[1].second.size();
    std::string who;
    for (std::size_t i = 0; i < opinions.size(); ++i) {
      const auto& [value, ranks] = opinions[i];
      who += (who.empty() ? "" : ", ") + ranks_text(ranks) + ": " + or_none(value);
      if (i == 0 && majority) continue;
      violation.ranks.insert(violation.ranks.end(), ranks.begin(), ranks.end());
    }
    std::sort(violation.ranks.begin(), violation.ranks.end());
    violation.what = named(evidence, joint) + ": members do not agree on its " + attribute.name +
                     " (" + who + ")";
    if (joint.paired) {
      violation.certainty = Certainty::likely;  // libraries exist that take the shorter one
      violation.advice = "do sender and receiver work out the same shape and type?";
    } else {
      violation.advice =
          "a branch that depends on the rank, a loop over something whose order differs, or an "
          "earlier call that only some members made";
    }
    for (const Call& call : joint.calls) {
      violation.evidence.emplace_back("rank " + std::to_string(call.rank) + " calls it in",
                                      call.row->module);
    }
    return violation;
  }

  void find_missing(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    if (!joint.group->complete()) {
      ++outcome.unchecked["some members of a group are not in the trace"];
      return;
    }
    std::int64_t latest = joint.iteration;
    bool all_went_on = true;  // else it was called behind the last step, maybe by others too
    for (const Call& call : joint.calls) {
      latest = std::max(latest, call.iteration);
      all_went_on = all_went_on && goes_on(evidence, call.rank, call.iteration);
    }
    std::vector<std::int32_t> gone;  // went on without it
    std::vector<std::int32_t> ended;
    for (std::int32_t member = 0; member < joint.group->size; ++member) {
      if (joint.of(member) != nullptr) continue;
      const std::int32_t rank = joint.group->ranks[static_cast<std::size_t>(member)];
      const std::string why = reason_for(evidence, joint, rank);
      if (!why.empty()) {
        ++outcome.unchecked[why];
        return;
      }
      (all_went_on && goes_on(evidence, rank, latest) ? gone : ended).push_back(rank);
    }
    if (gone.empty() && ended.empty()) return;  // a member's number is there twice
    Violation violation = started(joint);
    violation.ranks = gone.empty() ? ended : gone;
    // Recordings need not end at the same call.
    if (gone.empty()) violation.certainty = Certainty::possible;
    violation.what = named(evidence, joint) + ": " + ranks_text(violation.ranks) +
                     " did not call it, nor any later one of this group";
    violation.advice = gone.empty() ? "does the recording end at the same place on all ranks?"
                                    : "what keeps these ranks from it: a branch, an early return?";
    add(evidence, joint, std::move(violation), outcome);
  }

  // Why it says nothing that the rank's call is not there; "": it is missing.
  static std::string reason_for(const Evidence& evidence, const Joint& joint, std::int32_t rank) {
    const RankInfo* info = evidence.rank(rank);
    if (info == nullptr) return "some members of a group are not in the trace";
    const SegmentReader* segment = evidence.trace().segment(rank, joint.iteration);
    if (info->degraded || segment == nullptr ||
        !evidence.cut_short(rank, joint.iteration).empty()) {
      return "a member's recording ended early or lost records";
    }
    const auto span = evidence.collectives().span_of(*joint.group, rank);
    if (!span || joint.place < span->first) return "called before a member's recording began";
    if (joint.place < span->last) return "a member's recording has a gap here";
    return "";
  }

  static bool goes_on(const Evidence& evidence, std::int32_t rank, std::int64_t iteration) {
    const RankInfo* info = evidence.rank(rank);
    return std::any_of(info->iterations.begin(), info->iterations.end(), [&](std::int64_t later) {
      return later > iteration && evidence.cut_short(rank, later).empty();
    });
  }

  std::map<std::string, std::uint64_t> further_;  // by group
};

}  // namespace

std::unique_ptr<Check> make_order() { return std::make_unique<Order>(); }

}  // namespace ttrace::builtin
