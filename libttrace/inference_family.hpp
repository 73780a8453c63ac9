// SPDX-License-Identifier: Apache-2.0
// The closed family of layouts: everything that may ever explain the shards of a tensor. A member
// only relabels elements, by the same rule on every rank. Permutations, reversed ranks, or a rule
// of its own for one rank are signatures of bugs, so they are no members.
//   one dimension  = an ordered list of cuts, outer to inner, at most one of them not `shard`
//   one layout     = such a list for every dimension; each axis is used once or it replicates
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/documents.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {

struct MeshAxis {
  std::string name;
  std::uint64_t size = 1;
};

// The axes along which some ranks differ. Axes with equal coordinate columns are one (etp = tp).
struct RankMesh {
  std::vector<MeshAxis> axes;
  std::vector<std::vector<bool>> exclusive;  // one is a function of the other: not used together
};
// `incomplete`: axes of which the whole trace lacks ranks; they count although no two ranks differ.
[[nodiscard]] RankMesh mesh_of(const std::vector<Coordinates>& ranks,
                               const std::vector<MeshAxis>& incomplete = {});

// What parameters taught about a dimension, by (logical extent, local extent): cuts that no size
// suggests. Activations may use them where a dimension has the same two extents.
struct CutLessons {
  using Extents = std::pair<std::uint64_t, std::uint64_t>;
  std::map<Extents, std::vector<std::vector<Cut>>> cuts;
  std::map<Extents, std::uint64_t> padded;  // to the extent that the ranks hold together
  void add(const Extents& extents, const std::vector<Cut>& known);  // once
};

struct ShardSite {
  Coordinates where;
  Shape local;
};

struct FamilyQuestion {
  Shape global;                  // of the reference
  std::vector<ShardSite> sites;  // all ranks that hold a shard
  RankMesh mesh;
  bool may_pad = false;  // parameters only
  // Of the micro-batches in question; none where nothing is packed. A cut by documents must fit
  // all.
  std::vector<const Documents*> documents{};
};

// In the order in which they are tried; the last five only where nothing else fits the shape.
// `swapped` is for activations only, `padded` for parameters only.
enum class FamilyTier : std::uint8_t {
  plain,
  strided,
  uneven,
  part_replicated,
  swapped,
  ragged,
  padded
};
[[nodiscard]] std::string_view name_of(FamilyTier tier);

struct Hypothesis {
  Layout layout;
  Shape global;            // what the ranks hold together
  Shape reference;         // the reference's shape; smaller than `global` only when padded
  Hash128 index_map;       // equal for layouts that give every rank the same elements
  std::uint64_t cost = 0;  // the simpler, the smaller
};
[[nodiscard]] bool simpler(const Hypothesis& left, const Hypothesis& right);

// nullopt when the layout does not give every rank the local shape that it has. `global` may exceed
// the question's by padding.
[[nodiscard]] std::optional<Hypothesis> fit_to_shape(const Layout& layout, const Shape& global,
                                                     const FamilyQuestion& question);

// The members of a tier that fit the shape, each index map once, simplest first.
[[nodiscard]] std::vector<Hypothesis> members_of(FamilyTier tier, const FamilyQuestion& question,
                                                 const CutLessons& lessons);

// Of the tiers that are tried on every tensor.
[[nodiscard]] std::vector<Hypothesis> exact_members(const FamilyQuestion& question,
                                                    const CutLessons& lessons);

[[nodiscard]] std::string bracketed(const Shape& shape);  // "[2, 16]"

}  // namespace ttrace
