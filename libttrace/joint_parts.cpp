// SPDX-License-Identifier: Apache-2.0
// See joint_parts.hpp.
#include "libttrace/joint_parts.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kMostAxes = 8;

// Whether the shard has the reference's extents, but for one dimension.
bool alike_beside(std::size_t dim, const Shape& local, const Shape& reference) {
  if (local.size() != reference.size() || dim >= local.size()) return false;
  for (std::size_t i = 0; i < local.size(); ++i) {
    if (i != dim && local[i] != reference[i]) return false;
  }
  return true;
}

Piece piece_of(const Shape& shape, std::size_t dim, std::uint64_t local, std::uint64_t global,
               std::uint64_t rows) {
  Piece piece{Shape(shape.size(), 0), {Shape(shape.size(), 0), shape}};
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
    const Key& key, std::size_t dim, const Shard& shard, const std::string& axis) const {
  const LogicalTensor* reference = reference_of(key);
  if (reference == nullptr) return std::vector<Column>();
  if (!alike_beside(dim, shard.record->shape, reference->shape)) return std::nullopt;
  const std::uint64_t rows = reference->shape[dim];
  if (axis.empty()) return std::vector<Column>{{0, rows}};
  const RoutingChoice* choice = routing_.before(key, rows);
  const AxisPosition position = position_on(shard.where, axis);
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
    auto found = columns_of(of_number, dim, shard, pattern.axis);
    if (!found) return false;
    if (found->empty()) continue;
    most = std::max(most, found->size());
    columns.emplace_back(std::move(of_number), std::move(*found));
  }
  std::map<Key, std::vector<Piece>> pieces;
  std::uint64_t at = 0;
  for (std::size_t column = 0; column < most; ++column) {
    for (const auto& [of_number, taken] : columns) {
      if (taken.size() != most) return false;
      const Shape& shape = reference_of(of_number)->shape;
      append_piece(pieces[of_number], dim,
                   piece_of(shape, dim, at, taken[column].first, taken[column].rows));
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

std::vector<JointPattern> joint_patterns(const std::map<std::int32_t, Coordinates>& places) {
  std::set<std::string> names;
  for (const auto& [rank, where] : places) {
    for (const auto& [name, position] : where) {
      if (position.size > 1 && names.size() < kMostAxes) names.insert(name);
    }
  }
  const std::vector<std::string> axes(names.begin(), names.end());
  std::vector<JointPattern> patterns;
  std::set<std::map<std::int32_t, std::size_t>> known;
  for (std::uint64_t choice = 0; choice < std::uint64_t{1} << axes.size(); ++choice) {
    std::map<std::vector<std::uint64_t>, std::size_t> groups;
    JointPattern pattern;
    for (const auto& [rank, where] : places) {
      std::vector<std::uint64_t> coords;
      for (std::size_t i = 0; i < axes.size(); ++i) {
        if ((choice >> i & 1) != 0) coords.push_back(position_on(where, axes[i]).coord);
      }
      pattern.group_of[rank] = groups.emplace(std::move(coords), groups.size()).first->second;
    }
    if (known.insert(pattern.group_of).second) patterns.push_back(std::move(pattern));
  }
  const auto count = [](const JointPattern& pattern) {
    std::set<std::size_t> groups;
    for (const auto& [rank, group] : pattern.group_of) groups.insert(group);
    return groups.size();
  };
  std::stable_sort(patterns.begin(), patterns.end(),
                   [&count](const JointPattern& one, const JointPattern& other) {
                     return count(one) > count(other);
                   });
  return patterns;
}

}  // namespace ttrace
