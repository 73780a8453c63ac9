// SPDX-License-Identifier: Apache-2.0
// Outputs that are still to be summed: what a row-parallel product returns before its all-reduce,
// where the module ends before it. A sum would explain a forgotten reduction away, so it is tried
// last, with no factor of its own, for whole classes, and the judge accepts it only when something
// completes it.
#include <algorithm>

#include "libttrace/inference_vote.hpp"

namespace ttrace {
namespace {

constexpr double kPlain = 0.9;  // a layout without a sum that explains this much needs none
constexpr std::size_t kMostAxes = 4;

std::vector<MeshAxis> chosen_of(const std::vector<MeshAxis>& axes, std::uint64_t choice) {
  std::vector<MeshAxis> chosen;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if ((choice >> i & 1) != 0) chosen.push_back(axes[i]);
  }
  return chosen;
}

}  // namespace

void find_sum(const ClassOfTensors& tensors, const CutLessons& lessons, ClassVerdict& verdict) {
  if (tensors.declared || !verdict.varied || verdict.fit >= kPlain || verdict.standing.empty()) {
    return;
  }
  // A sum needs every rank.
  const Ballot ballot(on_all_ranks(tensors, observe(tensors)), seed_of(tensors.name));
  double best = kPlain;
  for (const Hypothesis& hypothesis : exact_members(tensors.question, lessons)) {
    const std::vector<std::uint64_t> indices = ballot.index_table(hypothesis);
    std::vector<MeshAxis> replicating;
    for (const MeshAxis& axis : tensors.question.mesh.axes) {
      if (!cuts_over(hypothesis.layout, axis.name)) replicating.push_back(axis);
    }
    if (replicating.size() > kMostAxes) continue;
    for (std::uint64_t choice = 1; choice < std::uint64_t{1} << replicating.size(); ++choice) {
      const std::vector<MeshAxis> axes = chosen_of(replicating, choice);
      const double fit = ballot.fit_of_sums(indices, axes);
      if (fit <= best) continue;
      best = fit;
      verdict.standing = {hypothesis};
      verdict.standing.front().layout.partial.clear();
      for (const MeshAxis& axis : axes) {
        verdict.standing.front().layout.partial.push_back(axis.name);
      }
      verdict.fit = fit;
      verdict.reason = "content: ranks hold addends";
    }
  }
}

}  // namespace ttrace
