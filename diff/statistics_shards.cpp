// SPDX-License-Identifier: Apache-2.0
// See statistics_shards.hpp.
#include "diff/statistics_shards.hpp"

#include "diff/parts.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kSlices = 8;
constexpr std::uint64_t kLeastWidth = 64;  // 8 elements a slice and row

std::string ranks_of(const Source& source) {
  std::string text = source.shards.size() == 1 ? "rank " : "ranks ";
  for (const PlacedShard* shard : source.shards) {
    if (shard != source.shards.front()) text += ", ";
    text += std::to_string(shard->shard.rank);
  }
  return text;
}

std::vector<ShardPart> slices_of(const Shape& shape) {
  const Box whole{Shape(shape.size(), 0), shape};
  if (shape.empty() || shape.back() < kLeastWidth) return {{"", 0, {whole}}};
  std::vector<ShardPart> slices;
  for (std::uint64_t i = 0; i < kSlices; ++i) {
    Box box = whole;
    box.start.back() = shape.back() * i / kSlices;
    box.count.back() = shape.back() * (i + 1) / kSlices - box.start.back();
    slices.push_back(
        {"slice " + std::to_string(i + 1) + " of " + std::to_string(kSlices), i, {box}});
  }
  return slices;
}

}  // namespace

std::vector<ShardPart> shard_parts(const LogicalTensor& candidate) {
  std::vector<ShardPart> parts;
  for (const Source& source : sources_of(candidate)) {
    ShardPart part{ranks_of(source), static_cast<std::uint64_t>(source.first().shard.rank), {}};
    for (const Piece& piece : source.pieces()) part.boxes.push_back(piece.global);
    parts.push_back(std::move(part));
  }
  return parts.size() > 1 ? parts : slices_of(candidate.shape);
}

}  // namespace ttrace
