// SPDX-License-Identifier: Apache-2.0
// Places the shards of one key as boxes of its logical tensor and proves that they make it up.
// Where a part of the proof fails, the tensor says so; it is never repaired.
#include <algorithm>
#include <map>
#include <set>

#include "libttrace/beside.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/piece_pool.hpp"
#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

void add_problem(LogicalTensor& tensor, FindingKind kind, std::string message,
                 std::vector<std::int32_t> ranks = {}) {
  Finding problem;
  problem.kind = kind;
  problem.key = tensor.key;
  problem.message = std::move(message);
  problem.ranks = std::move(ranks);
  tensor.problems.push_back(std::move(problem));
}

DType common_dtype(const std::vector<PlacedShard>& shards) {
  std::map<DType, std::size_t> votes;
  for (const PlacedShard& placed : shards) ++votes[placed.shard.record->dtype];
  const auto most = std::max_element(
      votes.begin(), votes.end(),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  return most == votes.end() ? DType::float32 : most->first;
}

// A flat range differs from rank to rank, so it is read from the shard's own declaration.
std::optional<FlatRange> flat_range_of(const Shard& shard, const Layout& layout) {
  const std::int32_t declared = shard.record->layout;
  if (declared == kNoLayout || shard.segment == nullptr) return layout.flat;
  const std::string& json = shard.segment->layouts().at(static_cast<std::size_t>(declared));
  if (json.find("\"flat\"") == std::string::npos) return layout.flat;
  return layout_beside(shard).flat;
}

// False, with a problem, when the layout cannot be the layout of some shards.
bool place(LogicalTensor& tensor, PiecePool& pool) {
  std::map<std::string, std::vector<std::int32_t>> refusals;
  Layout layout = tensor.layout;
  for (PlacedShard& placed : tensor.shards) {
    try {
      layout.flat = flat_range_of(placed.shard, tensor.layout);
      placed.pieces = pool.keep(
          pieces_of(layout, tensor.shape, placed.shard.record->shape, placed.shard.where));
    } catch (const Trouble& trouble) {
      refusals[trouble.what()].push_back(placed.shard.rank);
    }
  }
  for (const auto& [why, ranks] : refusals) {
    add_problem(tensor, FindingKind::layout_unknown, why + " (" + ranks_text(ranks) + ")", ranks);
  }
  return refusals.empty();
}

// The first shard of each place stands for it, if possible one whose bytes were kept.
void mark_copies(LogicalTensor& tensor) {
  std::map<PlaceId, PlacedShard*> standing;
  for (PlacedShard& placed : tensor.shards) {
    const auto [found, first] = standing.emplace(place_id(placed, tensor.layout), &placed);
    if (first) continue;
    PlacedShard*& stands = found->second;
    const bool better = placed.shard.record->kind == RecordKind::full &&
                        stands->shard.record->kind != RecordKind::full;
    (better ? *stands : placed).copy = true;
    if (better) stands = &placed;
  }
}

std::string box_list(const std::vector<Box>& boxes, std::size_t shown) {
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : " ") + to_string(boxes[i]);
  return text;
}

}  // namespace

PlaceId place_id(const PlacedShard& placed, const Layout& layout) {
  PlaceId id;
  id.elements.reserve(3 * placed.pieces.size() * placed.shard.record->shape.size());
  for (const Piece& piece : placed.pieces) {
    const Shape& local = piece.local_start;
    id.elements.insert(id.elements.end(), local.begin(), local.end());
    id.elements.insert(id.elements.end(), piece.global.start.begin(), piece.global.start.end());
    id.elements.insert(id.elements.end(), piece.global.count.begin(), piece.global.count.end());
  }
  for (const std::string& axis : layout.partial) {
    id.addend.push_back(position_on(placed.shard.where, axis).coord);
  }
  return id;
}

std::string ranks_text(std::vector<std::int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) last = first;  // "0, 1" rather than "0-1"
    text += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string boxes_text(const std::vector<Box>& boxes) {
  constexpr std::size_t kShown = 4;
  if (boxes.size() <= kShown) return box_list(boxes, boxes.size());
  return box_list(boxes, kShown) + " and " + std::to_string(boxes.size() - kShown) + " more boxes";
}

void prove_types(LogicalTensor& tensor) {
  std::map<DType, std::vector<std::int32_t>> by_type;
  tensor.dtype = common_dtype(tensor.shards);
  for (const PlacedShard& placed : tensor.shards) {
    by_type[placed.shard.record->dtype].push_back(placed.shard.rank);
  }
  if (by_type.size() <= 1) return;
  std::string message = "the shards have different types:";
  std::vector<std::int32_t> odd;
  for (const auto& [dtype, ranks] : by_type) {
    message += " " + std::string(name_of(dtype)) + " on " + ranks_text(ranks) + ";";
    if (dtype != tensor.dtype) odd.insert(odd.end(), ranks.begin(), ranks.end());
  }
  message.pop_back();
  std::sort(odd.begin(), odd.end());
  add_problem(tensor, FindingKind::dtype_differs, message, odd);
}

void prove_sums(LogicalTensor& tensor) {
  std::uint64_t expected = 1;
  std::string axes;
  std::set<std::vector<std::uint64_t>> present;
  for (const std::string& axis : tensor.layout.partial) {
    std::uint64_t size = 1;
    for (const PlacedShard& placed : tensor.shards) {
      size = std::max(size, position_on(placed.shard.where, axis).size);
    }
    if (size == 1) continue;
    expected *= size;
    axes += (axes.empty() ? "" : ", ") + axis;
  }
  if (expected == 1) return;
  for (const PlacedShard& placed : tensor.shards) {
    present.insert(place_id(placed, tensor.layout).addend);
  }
  add_problem(tensor, FindingKind::partial_incomplete,
              "the values must still be added over " + axes + ": " +
                  std::to_string(present.size()) + " of " + std::to_string(expected) +
                  " addends are here");
}

void prove_placed(LogicalTensor& tensor) {
  mark_copies(tensor);
  prove_sums(tensor);
  prove_copies(tensor);
  prove_coverage(tensor);
}

namespace {

LogicalTensor place_in(PiecePool& pool, const Key& key, const std::vector<Shard>& shards,
                       const LayoutDecision& decision) {
  LogicalTensor tensor;
  tensor.key = key;
  tensor.shape = decision.global_shape;
  tensor.layout = decision.layout;
  tensor.shards.reserve(shards.size());
  for (const Shard& shard : shards) tensor.shards.push_back({shard, {}, false});
  prove_types(tensor);
  if (!decision.known) {
    add_problem(tensor, FindingKind::layout_unknown, decision.reason);
    return tensor;
  }
  if (!place(tensor, pool)) return tensor;  // what is not placed is no hole
  prove_placed(tensor);
  return tensor;
}

}  // namespace

LogicalTensor place_shards(const Key& key, const std::vector<Shard>& shards,
                           const LayoutDecision& decision) {
  PiecePool pool;
  return place_in(pool, key, shards, decision);
}

void prove(LogicalTensor& tensor) {
  prove_types(tensor);
  prove_placed(tensor);
}

LogicalTensors place_all(const ShardGroups& groups, const LayoutDecisions& decisions) {
  LayoutDecision undecided;
  undecided.known = false;
  undecided.reason = "no layout was decided";
  LogicalTensors tensors;
  PiecePool pool;
  for (const auto& [key, shards] : groups) {
    const auto found = decisions.find(key);
    tensors.emplace_hint(
        tensors.end(), key,
        place_in(pool, key, shards, found == decisions.end() ? undecided : found->second));
  }
  return tensors;
}

bool LogicalTensor::whole() const {
  if (shards.empty() || !layout.partial.empty()) return false;
  const PlacedShard& first = shards.front();
  const bool alone = std::all_of(shards.begin() + 1, shards.end(),
                                 [](const PlacedShard& other) { return other.copy; });
  if (!alone || first.copy) return false;
  if (element_count(shape) == 0) return true;
  const Box everything{Shape(shape.size(), 0), shape};
  return first.pieces.size() == 1 && first.pieces[0].global == everything;
}

}  // namespace ttrace
