// SPDX-License-Identifier: Apache-2.0
// Groups are what the mesh says: their members are the ranks along one or several of its axes, all
// of them, numbered as they lie there. A group of other ranks reduces what does not belong
// together; one whose members are numbered in another order deals out slices to the wrong ranks.
// Programs may have groups of their own for purposes of their own, so an odd one is a mistake for
// sure only where it sums a gradient that a rank outside of it has, too, and sums with nobody.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/left_out.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

// What comes out depends on the members' numbers.
bool deals_out(const Collective& row) {
  return row.function == "reduce_scatter" || row.function == "all_gather" ||
         row.function == "all_to_all" || row.function == "gather" || row.function == "scatter";
}

std::string list_text(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (const std::int32_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// Distances between neighbours are equal, so that the world can be cut into groups like this one:
// programs with two meshes (one for experts) declare one of them.
bool tiles_the_world(const Evidence& evidence, std::vector<std::int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const std::int32_t stride = ranks.size() < 2 ? 1 : ranks[1] - ranks[0];
  const auto size = static_cast<std::int32_t>(ranks.size());
  for (std::int32_t i = 0; i < size; ++i) {
    if (ranks[static_cast<std::size_t>(i)] != ranks[0] + stride * i) return false;
  }
  const std::int32_t world = evidence.trace().world_size();
  return world % (stride * size) == 0 && ranks[0] % (stride * size) < stride;
}

// The first and the last rank along one axis.
bool ends_of_an_axis(const Evidence& evidence, const std::vector<std::int32_t>& ranks,
                     const MeshFit& fit) {
  if (ranks.size() != 2 || fit.axes.size() != 1) return false;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::tie(first, last) =
      std::minmax({position_on(evidence.places().at(ranks[0]), fit.axes[0]).coord,
                   position_on(evidence.places().at(ranks[1]), fit.axes[0]).coord});
  return first == 0 && last + 1 == position_on(evidence.places().at(ranks[0]), fit.axes[0]).size;
}

// Nobody declared it: the capture made it of the program's groups, or numbered the ranks.
bool mesh_is_guessed(const Evidence& evidence) {
  const auto& ranks = evidence.trace().ranks();
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankInfo& info) { return info.axes_guessed; });
}

class Groups final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const Joint& joint : log.of(iteration)) {
      if (joint.paired || joint.group->size < 2) continue;  // any two may send to each other
      if (seen_.insert(joint.group).second) look_at_group(evidence, joint, outcome);
      const auto odd = odd_.find(joint.group);
      if (odd != odd_.end()) look_who_is_left_out(evidence, joint, odd->second);
      const bool wrong = disordered_.count(joint.group) != 0 && deals_out(*joint.calls.front().row);
      if (wrong && told_.insert(joint.group).second) report_order(evidence, joint, outcome);
    }
  }

  void finish(const Evidence& /*evidence*/, Outcome& outcome) override {
    for (const Group* group : in_order_) {
      Odd& odd = odd_.at(group);
      if (!odd.meant || odd.proved) outcome.report(std::move(odd.violation));
    }
  }

 private:
  // Not all ranks along axes of the mesh, or not along them.
  struct Odd {
    Violation violation;
    std::vector<std::int32_t> others;  // of the nearest ranks along axes, those that are no members
    bool meant = false;                // as far as can be told from who the members are
    bool proved = false;               // somebody is left out
  };

  void look_at_group(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    const MeshFit fit = fit_of(evidence, *joint.group);
    if (fit.fit == Fit::unknown) {
      ++outcome.unchecked[fit.why];
      return;
    }
    ++outcome.compared["groups with the mesh"];
    if (!fit.ordered) disordered_.insert(joint.group);
    if (fit.fit == Fit::none) add(joint, odd_none(evidence, joint));
    if (fit.fit == Fit::part) add(joint, odd_part(evidence, joint, fit));
  }

  void add(const Joint& joint, Odd odd) {
    in_order_.push_back(joint.group);
    odd_.emplace(joint.group, std::move(odd));
  }

  // Whoever they are, and however the mesh is known.
  void look_who_is_left_out(const Evidence& evidence, const Joint& joint, Odd& odd) {
    if (odd.proved || !sums(*joint.calls.front().row)) return;
    const auto found = left_out_of(evidence, flow_, joint, odd.others);
    if (!found) return;
    odd.proved = true;
    odd.violation.certainty = Certainty::likely;
    odd.violation.evidence.emplace_back(
        "left out", named(evidence, joint) + " makes the gradient of " + found->parameter + "; " +
                        ranks_text(found->ranks) + (found->ranks.size() == 1 ? " has" : " have") +
                        " a gradient of " + found->parameter + ", too, that no sum went into");
  }

  static Odd started(const Evidence& evidence, const Joint& joint, const NearestGroup& nearest) {
    Odd odd;
    Violation& violation = odd.violation;
    violation.iteration = joint.iteration;
    violation.microbatch = joint.calls.front().row->microbatch;
    violation.ranks = joint.group->ranks;
    violation.module = joint.calls.front().row->module;
    violation.evidence = {{"first used by", named(evidence, joint)}};
    const auto& members = joint.group->ranks;
    for (const std::int32_t rank : nearest.ranks) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) {
        odd.others.push_back(rank);
      }
    }
    return odd;
  }

  static Odd odd_none(const Evidence& evidence, const Joint& joint) {
    const NearestGroup nearest = nearest_to(evidence, *joint.group);
    Odd odd = started(evidence, joint, nearest);
    const bool free = mesh_is_guessed(evidence) || tiles_the_world(evidence, joint.group->ranks);
    odd.violation.certainty = free ? Certainty::possible : Certainty::likely;
    odd.violation.what = "the members of " + group_text(evidence, *joint.group) +
                         " do not stand along axes of the mesh; nearest are " +
                         ranks_text(nearest.ranks) + ", along " + axes_text(nearest.axes);
    odd.violation.advice =
        "the lists of ranks from which this group was made: strides, order of axes";
    return odd;
  }

  // Some programs cut an axis once more, into groups of one size. Pipelines have groups of some
  // stages, which hold other parameters than those between them, for embeddings at both ends.
  static Odd odd_part(const Evidence& evidence, const Joint& joint, const MeshFit& fit) {
    const NearestGroup nearest = nearest_to(evidence, *joint.group);
    Odd odd = started(evidence, joint, nearest);
    const bool named_so =
        std::all_of(fit.axes.begin(), fit.axes.end(), [&](const std::string& axis) {
          return evidence.is_data_axis(axis) || evidence.is_tensor_axis(axis);
        });
    const auto stages = hold_other_parameters(evidence, joint.group->ranks, odd.others);
    odd.meant = tiles_the_world(evidence, joint.group->ranks) ||
                stages.value_or(!named_so && ends_of_an_axis(evidence, joint.group->ranks, fit));
    const bool dealt = named_so && !mesh_is_guessed(evidence);
    odd.violation.certainty = dealt ? Certainty::likely : Certainty::possible;
    odd.violation.what = group_text(evidence, *joint.group) + " has not all ranks along " +
                         axes_text(fit.axes) + ": these are " + ranks_text(nearest.ranks);
    odd.violation.advice = "who is left out of the list of ranks, and should it be?";
    return odd;
  }

  static void report_order(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    Violation violation = started(evidence, joint, {}).violation;
    violation.certainty = mesh_is_guessed(evidence) ? Certainty::possible : Certainty::likely;
    std::vector<std::int32_t> sorted = joint.group->ranks;
    std::sort(sorted.begin(), sorted.end());
    violation.what = named(evidence, joint) + " deals out parts by member number, but members 0, " +
                     "1, ... are ranks " + list_text(joint.group->ranks) +
                     ", in another order than along the mesh (" + list_text(sorted) + ")";
    violation.advice = "the key or order with which the group was split or its ranks were listed";
    outcome.report(std::move(violation));
  }

  GradientFlow flow_;
  std::set<const Group*> seen_, disordered_, told_;
  std::map<const Group*, Odd> odd_;
  std::vector<const Group*> in_order_;
};

}  // namespace

std::unique_ptr<Check> make_groups() { return std::make_unique<Groups>(); }

}  // namespace ttrace::builtin
