// SPDX-License-Identifier: Apache-2.0
// A layout says which part of the logical tensor a shard is. It is written as one entry per
// dimension: how the dimension is cut, and over which mesh axis, outer cut first. As text:
//   "s[cp:zigzag,tp] b h[tp:/2]"   dims string: names are free, "[...]" lists the cuts
//   "h[tp] d partial(cp)"          the values of the ranks along cp must still be added
//   "b s[tp] h swap(0,1)"          the shard has dimensions 0 and 1 in the other order: [s, b, h]
// cuts: "tp" plain (torch.chunk: ceil, uneven tail or empty) · "cp:zigzag" chunks r and 2n-1-r ·
// "tp:/2" the dimension is 2 equal sections, each cut over tp · "tp:(64,32,32)" unequal sections ·
// "cp:zigzag(8,12,12)" chunks r and 2n-1-r of each section · "cp:zigzag(@input.cu_seqlens)" and
// "cp:(@input.cu_seqlens)" sections that an input of the micro-batch tells (documents.hpp) ·
// "ep:ragged" pieces in the order of coordinates, of sizes that the shards themselves have ·
// "dp:flat" is not a cut of one dimension; flat ranges stand beside the dims (Layout::flat).
// Given a rank's coordinates it compiles to runs per dimension, and the product of runs to boxes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libttrace/core/record.hpp"

namespace ttrace {

struct AxisPosition {
  std::uint64_t coord = 0;
  std::uint64_t size = 1;
  friend bool operator==(const AxisPosition&, const AxisPosition&) = default;
};
// A rank's place in the mesh, by axis name. An axis that is absent has size 1.
using Coordinates = std::map<std::string, AxisPosition>;

// Where the rank stands on `axis`, which may be half of a mesh axis that cuts only partly: on tp of
// size 4, "tp/outer2" is (coord / 2 of 2) and "tp/inner2" is (coord % 2 of 2).
[[nodiscard]] AxisPosition position_on(const Coordinates& where, const std::string& axis);

enum class CutKind : std::uint8_t { shard, zigzag, strided, sections, ragged };

struct Cut {
  std::string axis;
  CutKind kind = CutKind::shard;
  std::uint64_t parts = 1;  // strided: number of equal sections
  // sections, and zigzag of each section: their extents in the logical tensor; ragged: what each
  // coordinate holds, empty as long as no shards were looked at
  std::vector<std::uint64_t> sections;
  // The input of the model that tells the sections of a micro-batch, "" for none. They are filled
  // in for one micro-batch (with_documents), before that nothing can be cut.
  std::string documents{};
  friend bool operator==(const Cut&, const Cut&) = default;
};

// A flat piece of the rank's shard: elements [start, start + count) of the shard in row-major
// order, whose shape (before flattening) is `shape`. ZeRO-style optimizers keep such pieces.
struct FlatRange {
  Shape shape;
  std::uint64_t start = 0;
  std::uint64_t count = 0;
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

struct Layout {
  std::vector<std::vector<Cut>> dims;  // outer to inner; one entry a dimension, empty = whole
  std::vector<std::string> partial;    // axes whose values must still be summed
  // Two dimensions that stand in the shard in the other order; `dims` are in the logical one.
  std::optional<std::pair<std::size_t, std::size_t>> swapped;
  std::optional<Shape> global_shape;  // as declared; inference knows it from the reference
  std::optional<FlatRange> flat;
  // As declared: the axes it speaks of, when these are not all. Along the others the tensor may be
  // cut once more, and `global_shape` is that of one of their coordinates.
  std::vector<std::string> axes;
  std::string source;  // "dtensor", "megatron", "file", "program", "inferred"
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Whether some dimension is cut over the axis, or over a half of it.
[[nodiscard]] bool cuts_over(const Layout& layout, const std::string& axis);

// Throws Trouble with the column of the first character that does not fit.
[[nodiscard]] Layout parse_dims(std::string_view text);
// Canonical: dims without names are printed "-" ("[tp]" for a cut one): "- [tp:/2] partial(cp)".
[[nodiscard]] std::string to_string(const Layout& layout);
// The JSON objects of /layouts: {"dims":"...","shape":[...],"flat":{...},"source":"..."}.
[[nodiscard]] Layout layout_from_json(std::string_view json);
[[nodiscard]] std::string layout_to_json(const Layout& layout);

// A run of one dimension: local [local, local + count) is global [global, global + count).
struct Run {
  std::uint64_t local = 0;
  std::uint64_t count = 0;
  std::uint64_t global = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

// The runs of a dimension of `extent` elements on the rank at `where`, in local order, adjacent
// runs joined. Empty when the rank holds nothing. Throws Trouble when a cut does not divide as it
// must.
[[nodiscard]] std::vector<Run> runs_of(std::uint64_t extent, const std::vector<Cut>& cuts,
                                       const Coordinates& where);
[[nodiscard]] std::uint64_t local_extent(const std::vector<Run>& runs);

// An axis-aligned box of a logical tensor, [start, start + count) per dimension.
struct Box {
  Shape start;
  Shape count;
  friend bool operator==(const Box&, const Box&) = default;
};
// Strides of a packed tensor in row-major order, in elements.
[[nodiscard]] Shape row_major(const Shape& shape);
[[nodiscard]] std::uint64_t volume(const Box& box);
[[nodiscard]] std::optional<Box> intersection(const Box& left, const Box& right);
[[nodiscard]] std::string to_string(const Box& box);  // "[0:8, 16:32]"

// The extents of a shard in the order of the logical dimensions, or back from there.
[[nodiscard]] Shape swapped_back(const Layout& layout, Shape local_shape);

// Gives ragged cuts, which say nothing of sizes, those of the shards: of one dimension, what each
// coordinate of the axis holds. Throws Trouble when ranks of one coordinate do not agree, or a
// coordinate has no rank.
void measure_ragged(Layout& layout, const std::vector<std::pair<Coordinates, Shape>>& shards);

// A box of the logical tensor and where it lies in the local shard (same extents). A single number
// as local_start of a box of several dimensions: the shard holds the box packed, from there on.
struct Piece {
  Shape local_start;
  Box global;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// The pieces of the shard of `local_shape` that the rank at `where` holds. With flat ranges the
// local tensor is one-dimensional and a piece's local_start has one entry: pieces are then split
// so that each is contiguous in the flat range (so with swapped dimensions). Throws Trouble when
// the sizes do not agree.
[[nodiscard]] std::vector<Piece> pieces_of(const Layout& layout, const Shape& global_shape,
                                           const Shape& local_shape, const Coordinates& where);

// What is wrong with a set of boxes that should cover a shape exactly once.
struct Coverage {
  std::vector<Box> holes;
  std::vector<Box> overlaps;
  [[nodiscard]] bool exact() const { return holes.empty() && overlaps.empty(); }
};
// Cost grows with the boxes, never with the elements.
[[nodiscard]] Coverage coverage(const Shape& shape, const std::vector<Box>& boxes);

}  // namespace ttrace
