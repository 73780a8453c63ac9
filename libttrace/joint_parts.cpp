// SPDX-License-Identifier: Apache-2.0
// See joint_parts.hpp.
#include "libttrace/joint_parts.hpp"

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

constexpr std::size_t kMostPatterns = 1024;

// Whether the shard has the reference's extents, but for the dimension of the rows, and its share
// of one that is cut.
bool alike_beside(std::size_t dim, const Shard& shard, const Shape& reference,
                  const std::optional<JointCut>& cut) {
  const Shape& local = shard.record->shape;
  if (local.size() != reference.size() || dim >= local.size()) return false;
  for (std::size_t i = 0; i < local.size(); ++i) {
    const bool shared = cut && cut->dim == i;
    const std::uint64_t shares = shared ? position_on(shard.where, cut->axis).size : 1;
    if (i != dim && local[i] * shares != reference[i]) return false;
  }
  return true;
}

// Of what the shard holds: all but the rows.
Piece without_rows(const Shard& shard, const std::optional<JointCut>& cut) {
  const Shape& local = shard.record->shape;
  Piece piece{Shape(local.size(), 0), {Shape(local.size(), 0), local}};
  if (cut) {
    piece.global.start[cut->dim] = position_on(shard.where, cut->axis).coord * local[cut->dim];
  }
  return piece;
}

Piece with_rows(Piece piece, std::size_t dim, std::uint64_t local, std::uint64_t global,
                std::uint64_t rows) {
  piece.local_start[dim] = local;
  piece.global.start[dim] = global;
  piece.global.count[dim] = rows;
  return piece;
}

// Goes on with the last piece where both sides do.
void append_piece(std::vector<Piece>& pieces, std::size_t dim, Piece piece) {
  if (volume(piece.global) == 0) return;
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    const std::uint64_t rows = last.global.count[dim];
    if (last.local_start[dim] + rows == piece.local_start[dim] &&
        last.global.start[dim] + rows == piece.global.start[dim]) {
      last.global.count[dim] += piece.global.count[dim];
      return;
    }
  }
  pieces.push_back(std::move(piece));
}

}  // namespace

const LogicalTensor* JointSizes::reference_of(const Key& key) const {
  auto found = reference_.find(key);
  if (found == reference_.end() && key.phase == Phase::recompute) {
    found = reference_.find(forward_of(key));
  }
  return found == reference_.end() ? nullptr : &found->second;
}

std::vector<std::int32_t> JointSizes::together(std::int32_t rank, std::int32_t own,
                                               const JointPattern& pattern) const {
  std::vector<std::int32_t> microbatches;
  for (const auto& [other, group] : pattern.group_of) {
    if (group != pattern.group_of.at(rank)) continue;
    const auto number = numbers_.find({other, own});
    if (number == numbers_.end()) continue;
    const bool known =
        std::find(microbatches.begin(), microbatches.end(), number->second) != microbatches.end();
    if (!known) microbatches.push_back(number->second);
  }
  return microbatches;
}

// What the rank takes of one micro-batch. A tensor that the reference has not has no rows there.
std::optional<std::vector<JointSizes::Column>> JointSizes::columns_of(
    const Key& key, std::size_t dim, const Shard& shard, const JointPattern& pattern) const {
  const LogicalTensor* reference = reference_of(key);
  if (reference == nullptr) return std::vector<Column>();
  if (!alike_beside(dim, shard, reference->shape, pattern.cut)) return std::nullopt;
  const std::uint64_t rows = reference->shape[dim];
  if (pattern.axis.empty()) return std::vector<Column>{{0, rows}};
  const RoutingChoice* choice = routing_.before(key, rows);
  const AxisPosition position = position_on(shard.where, pattern.axis);
  if (choice == nullptr || choice->total != rows) return std::nullopt;
  if (choice->counts.size() % position.size != 0) return std::nullopt;
  const std::size_t run = choice->counts.size() / position.size;
  std::vector<Column> columns;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < choice->counts.size(); ++i) {
    if (i / run == position.coord) columns.push_back({first, choice->counts[i]});
    first += choice->counts[i];
  }
  return columns;
}

bool JointSizes::take_shard(const Key& key, const Shard& shard, std::size_t dim,
                            const JointPattern& pattern, JointParts& parts) const {
  std::vector<std::pair<Key, std::vector<Column>>> columns;
  std::size_t most = 0;
  for (const std::int32_t number : together(shard.rank, key.microbatch, pattern)) {
    Key of_number = key;
    of_number.microbatch = number;
    auto found = columns_of(of_number, dim, shard, pattern);
    if (!found) return false;
    if (found->empty()) continue;
    most = std::max(most, found->size());
    columns.emplace_back(std::move(of_number), std::move(*found));
  }
  std::map<Key, std::vector<Piece>> pieces;
  const Piece beside = without_rows(shard, pattern.cut);
  std::uint64_t at = 0;
  for (std::size_t column = 0; column < most; ++column) {
    for (const auto& [of_number, taken] : columns) {
      if (taken.size() != most) return false;
      append_piece(pieces[of_number], dim,
                   with_rows(beside, dim, at, taken[column].first, taken[column].rows));
      at += taken[column].rows;
    }
  }
  if (columns.empty() || at != shard.record->shape[dim]) return false;
  for (auto& [of_number, list] : pieces) {
    parts[of_number].push_back({shard, std::move(list), false});
  }
  return true;
}

std::optional<JointParts> JointSizes::take_apart(const JointCall& call, std::size_t dim,
                                                 const JointPattern& pattern) const {
  JointParts parts;
  for (const Shard& shard : call.shards) {
    if (shard.record->kind != RecordKind::full) return std::nullopt;
    if (!take_shard(call.key, shard, dim, pattern, parts)) return std::nullopt;
  }
  return parts;
}

MeshAxes mesh_axes(const std::map<std::int32_t, Coordinates>& places) {
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& [rank, where] : places) {
    for (const auto& [name, position] : where) sizes[name] = std::max(sizes[name], position.size);
  }
  std::erase_if(sizes, [](const auto& axis) { return axis.second < 2; });
  return {sizes.begin(), sizes.end()};
}

std::vector<std::string> joint_axes(const std::map<std::int32_t, Coordinates>& places) {
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh_axes(places)) {
    axes.push_back(name);
    for (std::uint64_t part = 2; part < size; ++part) {
      if (size % part != 0) continue;
      axes.push_back(name + "/outer" + std::to_string(part));
      axes.push_back(name + "/inner" + std::to_string(part));
    }
  }
  return axes;
}

namespace {

using Groups = std::map<std::int32_t, std::size_t>;

// The groups of `coarse`, divided once more by the place on one axis.
Groups divided(const Groups& coarse, const std::map<std::int32_t, Coordinates>& places,
               const std::string& axis) {
  std::map<std::pair<std::size_t, std::uint64_t>, std::size_t> known;
  Groups fine;
  for (const auto& [rank, group] : coarse) {
    const std::uint64_t coord = position_on(places.at(rank), axis).coord;
    fine[rank] = known.emplace(std::pair(group, coord), known.size()).first->second;
  }
  return fine;
}

std::size_t count_of(const Groups& groups) {
  std::size_t most = 0;
  for (const auto& [rank, group] : groups) most = std::max(most, group + 1);
  return most;
}

}  // namespace

std::vector<JointPattern> joint_patterns(const std::map<std::int32_t, Coordinates>& places) {
  Groups all;
  for (const auto& [rank, where] : places) all[rank] = 0;
  std::vector<Groups> found{all};
  std::set<Groups> known{all};
  for (const std::string& axis : joint_axes(places)) {
    const std::size_t before = found.size();
    for (std::size_t i = 0; i < before && found.size() < kMostPatterns; ++i) {
      Groups finer = divided(found[i], places, axis);
      if (known.insert(finer).second) found.push_back(std::move(finer));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Groups& one, const Groups& other) {
    return count_of(one) > count_of(other);
  });
  std::vector<JointPattern> patterns;
  for (Groups& groups : found) patterns.push_back({std::move(groups), "", {}});
  return patterns;
}

}  // namespace ttrace
