// SPDX-License-Identifier: Apache-2.0
// Seeded sample positions, and random access to a logical tensor through the boxes of its shards.
#include "libttrace/inference_sampling.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::uint64_t kRuns = 16;
constexpr std::uint64_t kRunLength = 16;

}  // namespace

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

std::uint64_t seed_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return hash;
}

std::vector<std::uint64_t> sample_positions(std::uint64_t elements, std::uint64_t seed) {
  std::vector<std::uint64_t> positions;
  if (elements <= kRuns * kRunLength) {
    for (std::uint64_t i = 0; i < elements; ++i) positions.push_back(i);
    return positions;
  }
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    const std::uint64_t start = next_random(seed) % (elements - kRunLength + 1);
    for (std::uint64_t i = 0; i < kRunLength; ++i) positions.push_back(start + i);
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

bool has_bytes(const Shard& shard) {
  if (shard.record->kind != RecordKind::full) return false;
  const std::int64_t target = shard.record->alias_of;
  return target == kNotAlias ||
         shard.segment->records().at(static_cast<std::size_t>(target)).kind == RecordKind::full;
}

ElementReader::ElementReader(const LogicalTensor& tensor)
    : tensor_(tensor), place_(tensor.shape.size(), 0) {
  if (!tensor.layout.partial.empty()) return;  // no shard has the values
  for (const PlacedShard& placed : tensor.shards) {
    if (!placed.copy && has_bytes(placed.shard)) add_pieces(placed);
  }
}

void ElementReader::add_pieces(const PlacedShard& placed) {
  const Record& record = *placed.shard.record;
  for (const Piece& piece : placed.pieces) {
    if (volume(piece.global) == 0) continue;
    Part part;
    part.data = placed.shard.segment->bytes(record).data();
    part.dtype = record.dtype;
    part.box = piece.global;
    if (piece.local_start.size() != tensor_.shape.size()) {  // of a flat range: packed
      part.strides = row_major(piece.global.count);
      part.first = piece.local_start.at(0);
    } else {
      part.strides = row_major(record.shape);
      for (std::size_t dim = 0; dim < part.strides.size(); ++dim) {
        part.first += piece.local_start[dim] * part.strides[dim];
      }
    }
    parts_.push_back(std::move(part));
  }
}

std::optional<double> ElementReader::read(const Part& part) const {
  std::uint64_t offset = part.first;
  for (std::size_t dim = 0; dim < place_.size(); ++dim) {
    const std::uint64_t start = part.box.start[dim];
    if (place_[dim] < start || place_[dim] - start >= part.box.count[dim]) return std::nullopt;
    offset += (place_[dim] - start) * part.strides[dim];
  }
  return decode(part.dtype, part.data, offset);
}

std::optional<double> ElementReader::at(std::uint64_t index) const {
  for (std::size_t dim = place_.size(); dim-- > 0;) {
    place_[dim] = index % tensor_.shape[dim];
    index /= tensor_.shape[dim];
  }
  for (std::size_t step = 0; step < parts_.size(); ++step) {
    const std::size_t which = (last_ + step) % parts_.size();
    if (const auto value = read(parts_[which])) {
      last_ = which;
      return value;
    }
  }
  return std::nullopt;
}

void ElementReader::release() const {
  for (const PlacedShard& placed : tensor_.shards) {
    if (placed.copy || !has_bytes(placed.shard)) continue;
    placed.shard.segment->release(placed.shard.segment->bytes(*placed.shard.record));
  }
}

}  // namespace ttrace
