// SPDX-License-Identifier: Apache-2.0
// Fused parameters (q, k and v in one matrix) are cut section by section, and no size tells where a
// section ends. Their content does: before the first step a parameter equals the reference's bit
// for bit, so each slice of one rank can be looked up among the reference's, and runs of neighbours
// are the rank's parts of the sections.
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "libttrace/inference_vote.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kMaxSections = 16;  // more runs than that are a permutation, not sections
constexpr std::size_t kMembersTried = 4;  // the first may be the one that a bug changed

using SliceHashes = std::vector<Hash128>;

Hash128 hash_of(const std::vector<std::byte>& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

// Hashes of the slices of a shard at each index of `dim`.
SliceHashes hash_slices(const Shard& shard, std::size_t dim) {
  const Shape& shape = shard.record->shape;
  std::uint64_t outer = 1;
  std::uint64_t inner = size_of(shard.record->dtype);
  for (std::size_t i = 0; i < dim; ++i) outer *= shape[i];
  for (std::size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::span<const std::byte> bytes = shard.segment->bytes(*shard.record);
  SliceHashes hashes;
  std::vector<std::byte> slice(outer * inner);
  for (std::uint64_t index = 0; index < shape[dim]; ++index) {
    for (std::uint64_t block = 0; block < outer; ++block) {
      const std::uint64_t from = (block * shape[dim] + index) * inner;
      std::memcpy(slice.data() + block * inner, bytes.data() + from, inner);
    }
    hashes.push_back(hash_of(slice));
  }
  shard.segment->release(bytes);
  return hashes;
}

SliceHashes hash_slices(const LogicalTensor& tensor, std::size_t dim) {
  SliceHashes hashes;
  Box slice{Shape(tensor.shape.size(), 0), tensor.shape};
  slice.count[dim] = 1;
  std::vector<std::byte> bytes(volume(slice) * size_of(tensor.dtype));
  for (std::uint64_t index = 0; index < tensor.shape[dim]; ++index) {
    slice.start[dim] = index;
    read_box(tensor, slice, bytes.data());
    hashes.push_back(hash_of(bytes));
  }
  return hashes;
}

// The runs of the rank's slices in the reference; empty when a slice is not there or out of order.
// Among equal slices the neighbour of the one before comes first, then the nearest behind it.
std::vector<Run> match_runs(const SliceHashes& rank, const SliceHashes& reference) {
  std::vector<Run> runs;
  std::uint64_t next = 0;
  for (std::uint64_t local = 0; local < rank.size(); ++local) {
    const auto from = reference.begin() + static_cast<std::ptrdiff_t>(next);
    const auto found = std::find(from, reference.end(), rank[local]);
    if (found == reference.end()) return {};
    const auto global = static_cast<std::uint64_t>(found - reference.begin());
    if (runs.empty() || global != next) {
      if (runs.size() == kMaxSections) return {};
      runs.push_back({local, 0, global});
    }
    ++runs.back().count;
    next = global + 1;
  }
  return runs;
}

// The first rank's runs as the sections of an axis of `size` ranks: it has the first part of each.
std::optional<Cut> sections_from(const std::vector<Run>& runs, const MeshAxis& axis) {
  if (runs.size() < 2) return std::nullopt;
  Cut cut;
  cut.axis = axis.name;
  cut.kind = CutKind::sections;
  std::uint64_t begin = 0;
  for (const Run& run : runs) {
    if (run.global != begin) return std::nullopt;
    cut.sections.push_back(run.count * axis.size);
    begin += cut.sections.back();
  }
  return cut;
}

bool reproduces_every_rank(const Cut& cut, std::size_t dim, const std::vector<Shard>& shards,
                           const SliceHashes& reference) {
  for (const Shard& shard : shards) {
    const SliceHashes held = hash_slices(shard, dim);
    for (const Run& run : runs_of(reference.size(), {cut}, shard.where)) {
      for (std::uint64_t i = 0; i < run.count; ++i) {
        if (run.local + i >= held.size()) return false;
        if (!(held[run.local + i] == reference[run.global + i])) return false;
      }
    }
  }
  return true;
}

// The only dimension of which each rank holds a part, if there is just one.
std::optional<std::size_t> only_cut_dim(const FamilyQuestion& question) {
  std::optional<std::size_t> only;
  for (std::size_t dim = 0; dim < question.global.size(); ++dim) {
    if (question.sites.front().local[dim] == question.global[dim]) continue;
    if (only) return std::nullopt;
    only = dim;
  }
  return only;
}

bool comparable(const ClassMember& member) {
  if (member.reference == nullptr || !member.reference->proved()) return false;
  const auto usable = [&member](const Shard& shard) {
    return has_bytes(shard) && shard.record->dtype == member.reference->dtype;
  };
  const auto held = [](const PlacedShard& placed) { return has_bytes(placed.shard); };
  return std::all_of(member.shards->begin(), member.shards->end(), usable) &&
         std::all_of(member.reference->shards.begin(), member.reference->shards.end(), held);
}

std::optional<Cut> sections_of(const ClassMember& member, std::size_t dim, const MeshAxis& axis) {
  const auto first = std::find_if(
      member.shards->begin(), member.shards->end(),
      [&axis](const Shard& shard) { return position_on(shard.where, axis.name).coord == 0; });
  if (first == member.shards->end()) return std::nullopt;
  const SliceHashes reference = hash_slices(*member.reference, dim);
  const auto cut = sections_from(match_runs(hash_slices(*first, dim), reference), axis);
  if (!cut || !reproduces_every_rank(*cut, dim, *member.shards, reference)) return std::nullopt;
  return cut;
}

}  // namespace

std::optional<Layout> find_sections(const ClassOfTensors& parameters) {
  const FamilyQuestion& question = parameters.question;
  const std::optional<std::size_t> dim = only_cut_dim(question);
  if (!dim) return std::nullopt;
  const std::uint64_t local = question.sites.front().local[*dim];
  std::size_t tried = 0;
  for (const ClassMember& member : parameters.members) {
    if (!comparable(member)) continue;
    if (tried++ == kMembersTried) break;
    for (const MeshAxis& axis : question.mesh.axes) {
      if (local * axis.size != question.global[*dim]) continue;
      const auto cut = sections_of(member, *dim, axis);
      if (!cut) continue;
      Layout layout;
      layout.dims.resize(question.global.size());
      layout.dims[*dim] = {*cut};
      layout.source = "inferred";
      return layout;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
