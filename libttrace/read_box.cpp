// SPDX-License-Identifier: Apache-2.0
// Gathers a box of a logical tensor from the mapped shards that hold it, in the longest contiguous
// runs that both sides have.
#include <algorithm>
#include <array>
#include <cstring>

#include "libttrace/box_view.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {
namespace {

// How one piece lies in its shard: element `index` of the piece is at base + sum(index * strides).
struct Source {
  std::uint64_t base = 0;
  Shape strides;
};

Source source_of(const Piece& piece, const Shape& local_shape) {
  const std::size_t ndim = piece.global.start.size();
  if (piece.local_start.size() != ndim) {  // of a flat range: contiguous
    return {piece.local_start[0], row_major(piece.global.count)};
  }
  Source source{0, row_major(local_shape)};
  for (std::size_t dim = 0; dim < ndim; ++dim) {
    source.base += piece.local_start[dim] * source.strides[dim];
  }
  return source;
}

// The bytes of a shard that were read, so that their pages can be let go together.
struct Touched {
  std::size_t begin = SIZE_MAX;
  std::size_t end = 0;
};

class BoxReader {
 public:
  BoxReader(const Box& box, std::size_t element, std::byte* out)
      : box_(box), strides_(row_major(box.count)), element_(element), out_(out) {}

  void read(const PlacedShard& placed) {
    std::span<const std::byte> bytes;
    Touched touched;
    for (const Piece& piece : placed.pieces) {
      const std::optional<Box> common =
          meets(piece.global) ? intersection(piece.global, box_) : std::nullopt;
      if (!common) continue;
      if (bytes.empty()) bytes = placed.shard.segment->bytes(*placed.shard.record);
      copy(source_of(piece, placed.shard.record->shape), piece, *common, bytes, touched);
    }
    if (touched.end == 0) return;
    placed.shard.segment->release(bytes.subspan(touched.begin, touched.end - touched.begin));
  }

 private:
  // Cheaper than the intersection, for tensors of many pieces.
  [[nodiscard]] bool meets(const Box& piece) const {
    for (std::size_t dim = 0; dim < box_.start.size(); ++dim) {
      if (piece.start[dim] >= box_.start[dim] + box_.count[dim]) return false;
      if (box_.start[dim] >= piece.start[dim] + piece.count[dim]) return false;
    }
    return true;
  }

  void copy(const Source& source, const Piece& piece, const Box& common,
            std::span<const std::byte> bytes, Touched& touched) const {
    const std::size_t ndim = common.start.size();
    std::uint64_t from = source.base;
    std::uint64_t to = 0;
    for (std::size_t dim = 0; dim < ndim; ++dim) {
      from += (common.start[dim] - piece.global.start[dim]) * source.strides[dim];
      to += (common.start[dim] - box_.start[dim]) * strides_[dim];
    }
    // Dimensions from `outer` on are contiguous on both sides: `run` elements.
    std::uint64_t run = 1;
    std::size_t outer = ndim;
    while (outer > 0 && source.strides[outer - 1] == run && strides_[outer - 1] == run) {
      run *= common.count[--outer];
    }
    Shape index(outer, 0);
    while (true) {
      std::memcpy(out_ + to * element_, bytes.data() + from * element_, run * element_);
      touched.begin = std::min(touched.begin, from * element_);
      touched.end = std::max(touched.end, (from + run) * element_);
      std::size_t dim = outer;
      while (dim > 0) {
        --dim;
        from += source.strides[dim];
        to += strides_[dim];
        if (++index[dim] < common.count[dim]) break;
        from -= source.strides[dim] * common.count[dim];
        to -= strides_[dim] * common.count[dim];
        index[dim] = 0;
        if (dim == 0) return;
      }
      if (outer == 0) return;
    }
  }

  const Box& box_;
  Shape strides_;
  std::size_t element_;
  std::byte* out_;
};

// Copies that differ leave no element unread: the first is taken, and the conflict is reported.
void require_readable(const LogicalTensor& tensor) {
  for (const Finding& problem : tensor.problems) {
    if (problem.kind == FindingKind::replica_conflict) continue;
    throw Trouble("read", to_string(tensor.key),
                  "its shards are not a proved whole: " + problem.message);
  }
}

bool contains(const Box& outer, const Box& inner) {
  for (std::size_t dim = 0; dim < outer.start.size(); ++dim) {
    if (inner.start[dim] < outer.start[dim]) return false;
    if (inner.start[dim] + inner.count[dim] > outer.start[dim] + outer.count[dim]) return false;
  }
  return true;
}

// Whether elements of such a box, at these strides, lie one after another.
bool is_packed(const Shape& count, const Shape& strides) {
  std::uint64_t expected = 1;
  for (std::size_t dim = count.size(); dim-- > 0;) {
    if (count[dim] == 1) continue;
    if (strides[dim] != expected) return false;
    expected *= count[dim];
  }
  return true;
}

void require_inside(const LogicalTensor& tensor, const Box& box) {
  const std::optional<Box> inside =
      intersection(box, {Shape(tensor.shape.size(), 0), tensor.shape});
  if (inside == box) return;
  throw Trouble("read", to_string(tensor.key), to_string(box) + " is not inside of the tensor");
}

}  // namespace

BoxView view_box(const LogicalTensor& tensor, const Box& box) {
  require_readable(tensor);
  if (volume(box) == 0) return {};
  require_inside(tensor, box);
  for (const PlacedShard& placed : tensor.shards) {
    if (placed.copy) continue;
    for (const Piece& piece : placed.pieces) {
      if (!contains(piece.global, box)) continue;
      const Source source = source_of(piece, placed.shard.record->shape);
      if (!is_packed(box.count, source.strides)) return {};
      std::uint64_t first = source.base;
      for (std::size_t dim = 0; dim < box.start.size(); ++dim) {
        first += (box.start[dim] - piece.global.start[dim]) * source.strides[dim];
      }
      const std::size_t size = size_of(tensor.dtype);
      const SegmentReader& segment = *placed.shard.segment;
      const auto bytes = segment.bytes(*placed.shard.record);
      return {segment, bytes.subspan(first * size, volume(box) * size)};
    }
  }
  return {};
}

void read_box(const LogicalTensor& tensor, const Box& box, std::byte* out) {
  require_readable(tensor);
  if (volume(box) == 0) return;
  require_inside(tensor, box);
  BoxReader reader(box, size_of(tensor.dtype), out);
  for (const PlacedShard& placed : tensor.shards) {
    if (!placed.copy) reader.read(placed);
  }
}

}  // namespace ttrace
