// SPDX-License-Identifier: Apache-2.0
// See mesh_fit.hpp.
#include "invariant/builtin/collective/mesh_fit.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::size_t kAxes = 5;  // of which all orders and choices are tried

using Coordinate = std::vector<std::uint64_t>;

// Axes of the mesh that ranks declared; empty: they declared none.
std::vector<std::string> declared_axes(const Evidence& evidence) {
  std::set<std::string> axes;
  for (const RankInfo& info : evidence.trace().ranks()) {
    for (const auto& [name, position] : info.axes) {
      if (position.size > 1) axes.insert(name);
    }
  }
  return {axes.begin(), axes.end()};
}

// Together they have more places than there are ranks: one cuts ranks that another one has.
bool overlap(const Evidence& evidence, const std::vector<std::string>& axes) {
  std::int64_t places = 1;
  for (const std::string& axis : axes) {
    places *= static_cast<std::int64_t>(position_on(evidence.places().begin()->second, axis).size);
  }
  return places > evidence.trace().world_size();
}

Coordinate coordinate_of(const Coordinates& where, const std::vector<std::string>& axes) {
  Coordinate coordinate;
  for (const std::string& axis : axes) coordinate.push_back(position_on(where, axis).coord);
  return coordinate;
}

// Whether each member comes after the one before, for some order of the axes.
bool in_order(const std::vector<const Coordinates*>& members, std::vector<std::string> axes) {
  if (axes.size() > kAxes) return true;
  do {
    bool ascending = true;
    for (std::size_t i = 1; i < members.size() && ascending; ++i) {
      ascending = coordinate_of(*members[i - 1], axes) < coordinate_of(*members[i], axes);
    }
    if (ascending) return true;
  } while (std::next_permutation(axes.begin(), axes.end()));
  return false;
}

}  // namespace

MeshFit fit_of(const Evidence& evidence, const Group& group) {
  MeshFit fit;
  if (!group.complete()) {
    fit.why = "some members of a group are not in the trace";
    return fit;
  }
  const std::vector<std::string> declared = declared_axes(evidence);
  if (declared.empty()) {
    fit.why = "no mesh was declared";
    return fit;
  }
  std::vector<const Coordinates*> members;
  std::set<Coordinate> distinct;
  for (const std::int32_t rank : group.ranks) {
    const auto place = evidence.places().find(rank);
    if (place == evidence.places().end()) {
      fit.why = "some members of a group are not in the trace";
      return fit;
    }
    members.push_back(&place->second);
    distinct.insert(coordinate_of(place->second, declared));
  }
  if (distinct.size() != members.size()) {
    fit.why = "the declared mesh has several ranks in one place";
    return fit;
  }
  if (overlap(evidence, declared) && group.size != evidence.trace().world_size()) {
    fit.why = "axes of the declared mesh overlap";
    return fit;
  }
  std::uint64_t box = 1;
  std::uint64_t line = 1;
  for (const std::string& axis : declared) {
    std::set<std::uint64_t> values;
    for (const Coordinates* where : members) values.insert(position_on(*where, axis).coord);
    if (values.size() < 2) continue;
    fit.axes.push_back(axis);
    box *= values.size();
    line *= position_on(*members.front(), axis).size;
  }
  const bool world = group.size == evidence.trace().world_size();
  const bool filled = world || box == members.size();
  fit.fit = !filled ? Fit::none : world || box == line ? Fit::whole : Fit::part;
  fit.ordered = in_order(members, fit.axes);
  return fit;
}

NearestGroup nearest_to(const Evidence& evidence, const Group& group) {
  const std::vector<std::string> axes = declared_axes(evidence);
  const std::set<std::int32_t> members(group.ranks.begin(), group.ranks.end());
  NearestGroup nearest;
  double best = -1;
  for (std::size_t choice = 1; choice < (std::size_t{1} << std::min(axes.size(), kAxes));
       ++choice) {
    std::vector<std::string> open, closed;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      (i < kAxes && ((choice >> i) & 1) != 0 ? open : closed).push_back(axes[i]);
    }
    std::map<Coordinate, std::vector<std::int32_t>> lines;
    for (const auto& [rank, where] : evidence.places()) {
      lines[coordinate_of(where, closed)].push_back(rank);
    }
    for (const auto& [where, ranks] : lines) {
      const auto common = static_cast<double>(std::count_if(
          ranks.begin(), ranks.end(), [&](std::int32_t rank) { return members.count(rank) != 0; }));
      const double all = static_cast<double>(ranks.size() + members.size()) - common;
      // Of equally near ones the one along fewer axes.
      const double score = common / all - 1e-6 * static_cast<double>(open.size());
      if (score <= best) continue;
      best = score;
      nearest = {open, ranks};
    }
  }
  return nearest;
}

std::string axes_text(const std::vector<std::string>& axes) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == axes.size() ? " and " : ", ") + axes[i];
  }
  return text;
}

}  // namespace ttrace::builtin
