// SPDX-License-Identifier: Apache-2.0
// How groups and collectives are called in what is reported, and how they ended.
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {

std::string group_text(const Evidence& evidence, const Group& group) {
  std::string text = group.name.empty() ? "an unnamed group" : "group " + group.name;
  const std::vector<std::int32_t> known = group.known();
  if (known.empty()) return text;
  text += " (" + ranks_text(known);
  if (known.size() < group.ranks.size()) {
    text += " and " + std::to_string(group.ranks.size() - known.size()) + " more";
  }
  const MeshFit fit = fit_of(evidence, group);
  if (fit.fit == Fit::whole || fit.fit == Fit::part) {
    text += fit.axes.empty() ? "" : "; along " + axes_text(fit.axes);
  }
  return text + ")";
}

std::string named(const Evidence& evidence, const Joint& joint) {
  const Collective& row = *joint.calls.front().row;
  std::string text = row.function;
  if (!row.reduction.empty()) text += " (" + row.reduction + ")";
  text += ", call " + std::to_string(joint.sequence) + " of " + group_text(evidence, *joint.group);
  return row.module.empty() ? text : text + " in " + row.module;
}

std::string named(const Evidence& evidence, const Call& call) {
  return named(evidence, joint_with(*evidence.collectives().group_of(call), call));
}

Joint joint_with(const Group& group, const Call& call) {
  Joint joint;
  joint.group = &group;
  joint.sequence = call.row->sequence;
  joint.iteration = call.iteration;
  joint.calls = {call};
  joint.paired = is_send_or_receive(*call.row);
  return joint;
}

bool stopped(const Evidence& evidence, const Call& call) {
  return (call.row->flags & (kCollectiveFailed | kCollectiveBegun)) != 0 &&
         !evidence.cut_short(call.rank, call.iteration).empty();
}

}  // namespace ttrace::builtin
