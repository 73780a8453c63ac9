// SPDX-License-Identifier: Apache-2.0
// Each element exactly once. A hole is explained by the coordinates at which no rank stands, an
// overlap by the ranks that both hold the elements.
#include <algorithm>
#include <set>

#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kMaxCombinations = 1 << 16;  // of coordinates, to look for missing ones

// The mesh axes that cut the tensor, "tp" for "tp/outer2", with their sizes.
std::vector<std::pair<std::string, std::uint64_t>> cutting_axes(const LogicalTensor& tensor) {
  std::vector<std::pair<std::string, std::uint64_t>> axes;
  if (tensor.shards.empty()) return axes;
  const Coordinates& where = tensor.shards.front().shard.where;
  for (const auto& cuts : tensor.layout.dims) {
    for (const Cut& cut : cuts) {
      const bool split = where.find(cut.axis) == where.end();
      const std::string base = split ? cut.axis.substr(0, cut.axis.rfind('/')) : cut.axis;
      const bool known = std::any_of(axes.begin(), axes.end(),
                                     [&base](const auto& axis) { return axis.first == base; });
      if (!known) axes.emplace_back(base, position_on(where, base).size);
    }
  }
  return axes;
}

// "tp=1 cp=0, tp=1 cp=1": where a rank should stand and none does. "" when all are there.
std::string missing_coordinates(const LogicalTensor& tensor) {
  constexpr std::size_t kShown = 8;
  const auto axes = cutting_axes(tensor);
  std::uint64_t combinations = 1;
  for (const auto& [name, size] : axes) {
    combinations *= size;
    if (combinations > kMaxCombinations) return "";
  }
  std::set<std::vector<std::uint64_t>> present;
  for (const PlacedShard& placed : tensor.shards) {
    std::vector<std::uint64_t> coords;
    for (const auto& axis : axes) {
      coords.push_back(position_on(placed.shard.where, axis.first).coord);
    }
    present.insert(std::move(coords));
  }
  std::string text;
  std::size_t missing = 0;
  for (std::uint64_t combination = 0; combination < combinations; ++combination) {
    std::vector<std::uint64_t> coords(axes.size());
    std::uint64_t rest = combination;
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      coords[axis] = rest % axes[axis].second;
      rest /= axes[axis].second;
    }
    if (present.count(coords) != 0 || ++missing > kShown) continue;
    text += missing == 1 ? "" : ",";
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      text += (text.empty() ? "" : " ") + axes[axis].first + "=" + std::to_string(coords[axis]);
    }
  }
  if (missing > kShown) text += " and " + std::to_string(missing - kShown) + " more";
  return text;
}

// A flat range has one dimension, whatever the tensor has.
bool flat_ranges(const LogicalTensor& tensor) {
  return std::any_of(tensor.shards.begin(), tensor.shards.end(), [&](const PlacedShard& placed) {
    return placed.shard.record->shape.size() != tensor.shape.size();
  });
}

Finding hole(const LogicalTensor& tensor, const std::vector<Box>& holes) {
  Finding problem;
  problem.kind = FindingKind::hole;
  problem.key = tensor.key;
  problem.message = "no rank holds " + boxes_text(holes);
  const std::string missing = missing_coordinates(tensor);
  if (missing.empty() && flat_ranges(tensor)) {
    problem.message += ": flat ranges of other ranks are missing";
  } else if (missing.empty()) {
    problem.message += ", though all coordinates of the layout's axes are present";
  } else {
    problem.message += ": no rank at " + missing;
    problem.evidence.emplace_back("missing", missing);
  }
  return problem;
}

Finding overlap(const LogicalTensor& tensor, const std::vector<Box>& overlaps) {
  Finding problem;
  problem.kind = FindingKind::overlap;
  problem.key = tensor.key;
  for (const PlacedShard& placed : tensor.shards) {
    const bool holds =
        !placed.copy &&
        std::any_of(placed.pieces.begin(), placed.pieces.end(), [&overlaps](const Piece& piece) {
          return intersection(piece.global, overlaps[0]).has_value();
        });
    if (holds) problem.ranks.push_back(placed.shard.rank);
  }
  std::sort(problem.ranks.begin(), problem.ranks.end());
  problem.message = boxes_text(overlaps) + " is held by " + ranks_text(problem.ranks) +
                    ", which are no copies of each other";
  return problem;
}

}  // namespace

void prove_coverage(LogicalTensor& tensor) {
  std::vector<Box> boxes;
  std::set<std::vector<std::uint64_t>> counted;  // addends of one sum are one box
  const bool sums = !tensor.layout.partial.empty();
  for (const PlacedShard& placed : tensor.shards) {
    if (placed.copy) continue;
    if (sums && !counted.insert(place_id(placed, tensor.layout).elements).second) continue;
    for (const Piece& piece : placed.pieces) boxes.push_back(piece.global);
  }
  const Coverage found = coverage(tensor.shape, boxes);
  if (!found.holes.empty()) tensor.problems.push_back(hole(tensor, found.holes));
  if (!found.overlaps.empty()) tensor.problems.push_back(overlap(tensor, found.overlaps));
}

}  // namespace ttrace
