// SPDX-License-Identifier: Apache-2.0
// Groups are what the mesh says: their members are the ranks along one or several of its axes, all
// of them, numbered as they lie there. A group of other ranks reduces what does not belong
// together; one whose members are numbered in another order deals out slices to the wrong ranks.
#include <algorithm>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
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

class Groups final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const Joint& joint : log.of(iteration)) {
      if (joint.paired || joint.group->size < 2) continue;  // any two may send to each other
      if (seen_.insert(joint.group).second) look_at_group(evidence, joint, outcome);
      const bool wrong = disordered_.count(joint.group) != 0 && deals_out(*joint.calls.front().row);
      if (wrong && told_.insert(joint.group).second) report_order(evidence, joint, outcome);
    }
  }

 private:
  void look_at_group(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    const MeshFit fit = fit_of(evidence, *joint.group);
    if (fit.fit == Fit::unknown) {
      ++outcome.unchecked[fit.why];
      return;
    }
    ++outcome.compared["groups with the mesh"];
    if (!fit.ordered) disordered_.insert(joint.group);
    if (fit.fit == Fit::none) report_none(evidence, joint, outcome);
    if (fit.fit == Fit::part) report_part(evidence, joint, fit, outcome);
  }

  static Violation started(const Evidence& evidence, const Joint& joint) {
    Violation violation;
    violation.iteration = joint.iteration;
    violation.microbatch = joint.calls.front().row->microbatch;
    violation.ranks = joint.group->ranks;
    violation.module = joint.calls.front().row->module;
    violation.evidence = {{"first used by", named(evidence, joint)}};
    return violation;
  }

  static void report_none(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    Violation violation = started(evidence, joint);
    const bool regular = tiles_the_world(evidence, joint.group->ranks);
    violation.certainty = regular ? Certainty::possible : Certainty::likely;
    const NearestGroup nearest = nearest_to(evidence, *joint.group);
    violation.what = "the members of " + group_text(evidence, *joint.group) +
                     " do not stand along axes of the mesh; nearest are " +
                     ranks_text(nearest.ranks) + ", along " + axes_text(nearest.axes);
    violation.advice = "the lists of ranks from which this group was made: strides, order of axes";
    outcome.report(std::move(violation));
  }

  // Some programs cut an axis once more, into groups of one size. Pipelines have groups of some
  // stages, for embeddings at both ends.
  static void report_part(const Evidence& evidence, const Joint& joint, const MeshFit& fit,
                          Outcome& outcome) {
    if (tiles_the_world(evidence, joint.group->ranks)) return;
    const bool stages = std::any_of(fit.axes.begin(), fit.axes.end(), [](const std::string& axis) {
      return axis.rfind("pp", 0) == 0 || axis.rfind("pipe", 0) == 0;
    });
    if (stages) return;
    const bool dealt = std::all_of(fit.axes.begin(), fit.axes.end(), [](const std::string& axis) {
      return is_data_axis(axis) || is_tensor_axis(axis);
    });
    Violation violation = started(evidence, joint);
    violation.certainty = dealt ? Certainty::likely : Certainty::possible;
    const NearestGroup nearest = nearest_to(evidence, *joint.group);
    violation.what = group_text(evidence, *joint.group) + " has not all ranks along " +
                     axes_text(fit.axes) + ": these are " + ranks_text(nearest.ranks);
    violation.advice = "who is left out of the list of ranks, and should it be?";
    outcome.report(std::move(violation));
  }

  static void report_order(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    Violation violation = started(evidence, joint);
    violation.certainty = Certainty::likely;
    std::vector<std::int32_t> sorted = joint.group->ranks;
    std::sort(sorted.begin(), sorted.end());
    violation.what = named(evidence, joint) + " deals out parts by member number, but members 0, " +
                     "1, ... are ranks " + list_text(joint.group->ranks) +
                     ", in another order than along the mesh (" + list_text(sorted) + ")";
    violation.advice = "the key or order with which the group was split or its ranks were listed";
    outcome.report(std::move(violation));
  }

  std::set<const Group*> seen_, disordered_, told_;
};

}  // namespace

std::unique_ptr<Check> make_groups() { return std::make_unique<Groups>(); }

}  // namespace ttrace::builtin
