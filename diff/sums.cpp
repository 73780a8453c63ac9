// SPDX-License-Identifier: Apache-2.0
// See sums.hpp.
#include "diff/sums.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "diff/parts.hpp"

namespace ttrace {
namespace {

using Axes = std::vector<std::string>;
using Coords = std::vector<std::uint64_t>;

Coords coords_on(const Axes& axes, const Coordinates& where) {
  Coords coords;
  for (const std::string& axis : axes) coords.push_back(position_on(where, axis).coord);
  return coords;
}

// Shards that hold the same elements.
std::vector<std::vector<const PlacedShard*>> places_of(const LogicalTensor& tensor) {
  std::vector<std::vector<const PlacedShard*>> places;
  for (const PlacedShard& shard : tensor.shards) {
    const auto found = std::find_if(places.begin(), places.end(), [&](const auto& place) {
      return place.front()->pieces == shard.pieces;
    });
    if (found == places.end()) {
      places.push_back({&shard});
    } else {
      found->push_back(&shard);
    }
  }
  return places;
}

// Whether shards with equal coordinates on these axes are equal, and every coordinate is there.
bool explains(const Axes& axes, const std::vector<const PlacedShard*>& place) {
  std::map<Coords, Hash128> addends;
  std::uint64_t expected = 1;
  for (const std::string& axis : axes) {
    expected *= position_on(place.front()->shard.where, axis).size;
  }
  for (const PlacedShard* shard : place) {
    const Hash128& hash = shard->shard.record->hash;
    const auto [known, added] = addends.emplace(coords_on(axes, shard->shard.where), hash);
    if (!added && known->second != hash) return false;
  }
  return addends.size() == expected;
}

// Where an axis cuts only between groups of its ranks ("tp/outer2"): the place in such a group.
Axes inner_axes(const LogicalTensor& tensor) {
  Axes axes;
  for (const auto& cuts : tensor.layout.dims) {
    for (const Cut& cut : cuts) {
      const std::size_t slash = cut.axis.find("/outer");
      if (slash == std::string::npos) continue;
      const std::string base = cut.axis.substr(0, slash);
      const Coordinates& where = tensor.shards.front().shard.where;
      const std::uint64_t size = position_on(where, base).size / position_on(where, cut.axis).size;
      axes.push_back(base + "/inner" + std::to_string(size));
    }
  }
  return axes;
}

// Subsets of the mesh axes, smallest first.
std::vector<Axes> subsets(const LogicalTensor& tensor) {
  Axes all;
  for (const auto& [name, position] : tensor.shards.front().shard.where) {
    if (position.size > 1) all.push_back(name);
  }
  for (std::string& axis : inner_axes(tensor)) all.push_back(std::move(axis));
  std::vector<Axes> sets{{}};
  for (const std::string& axis : all) {
    const std::size_t before = sets.size();
    for (std::size_t i = 0; i < before; ++i) {
      sets.push_back(sets[i]);
      sets.back().push_back(axis);
    }
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const Axes& one, const Axes& other) { return one.size() < other.size(); });
  return sets;
}

void mark_copies(LogicalTensor& sum) {
  for (std::size_t i = 0; i < sum.shards.size(); ++i) {
    PlacedShard& shard = sum.shards[i];
    const Coords own = coords_on(sum.layout.partial, shard.shard.where);
    shard.copy =
        std::any_of(sum.shards.begin(), sum.shards.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const PlacedShard& earlier) {
                      return coords_on(sum.layout.partial, earlier.shard.where) == own &&
                             earlier.pieces == shard.pieces;
                    });
  }
}

}  // namespace

bool has_problem(const LogicalTensor& tensor, FindingKind kind) {
  return std::any_of(tensor.problems.begin(), tensor.problems.end(),
                     [kind](const Finding& problem) { return problem.kind == kind; });
}

std::optional<LogicalTensor> as_sum(const LogicalTensor& tensor) {
  const bool conflicts_only =
      !tensor.problems.empty() &&
      std::all_of(tensor.problems.begin(), tensor.problems.end(), [](const Finding& problem) {
        return problem.kind == FindingKind::replica_conflict;
      });
  if (!conflicts_only || !tensor.layout.partial.empty()) return std::nullopt;
  const auto places = places_of(tensor);
  for (const Axes& axes : subsets(tensor)) {
    const bool fits = std::all_of(places.begin(), places.end(),
                                  [&axes](const auto& place) { return explains(axes, place); });
    if (!fits) continue;
    LogicalTensor sum = tensor;
    sum.layout.partial = axes;
    sum.problems.clear();
    mark_copies(sum);
    return sum;
  }
  return std::nullopt;
}

std::string axes_text(const LogicalTensor& sum) {
  std::string text;
  for (const std::string& axis : sum.layout.partial) text += (text.empty() ? "" : ", ") + axis;
  return text;
}

}  // namespace ttrace
