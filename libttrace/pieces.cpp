// SPDX-License-Identifier: Apache-2.0
// A shard as pieces: boxes of the logical tensor and where they lie in the shard. Without a flat
// range they are the row-major product of the runs of the dimensions.
#include <algorithm>
#include <utility>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {
namespace {

// More pieces than this in one shard is a mistake in the layout, not a way to cut tensors.
constexpr std::uint64_t kMaxPieces = std::uint64_t{1} << 22;

using RunTable = std::vector<std::vector<Run>>;  // by dimension

// Row-major product of the runs.
std::vector<Piece> product_of(const RunTable& table) {
  std::uint64_t total = 1;
  for (const auto& runs : table) {
    if (runs.empty()) return {};
    if (runs.size() > kMaxPieces / total) {
      throw Trouble("layout", std::to_string(kMaxPieces), "more pieces than that in one shard");
    }
    total *= runs.size();
  }
  std::vector<Piece> pieces;
  pieces.reserve(total);
  std::vector<std::size_t> index(table.size(), 0);
  for (std::uint64_t made = 0; made < total; ++made) {
    const Shape zeros(table.size(), 0);
    Piece piece{zeros, {zeros, zeros}};
    for (std::size_t dim = 0; dim < table.size(); ++dim) {
      const Run& run = table[dim][index[dim]];
      piece.local_start[dim] = run.local;
      piece.global.start[dim] = run.global;
      piece.global.count[dim] = run.count;
    }
    pieces.push_back(std::move(piece));
    for (std::size_t dim = table.size(); dim-- > 0;) {
      if (++index[dim] < table[dim].size()) break;
      index[dim] = 0;
    }
  }
  return pieces;
}

// Splits a range of a row-major tensor into pieces that are boxes of the logical tensor and
// contiguous in the range. Without inner runs these are at most 2 * ndim - 1: partial rows before
// and after a block of whole rows, again in each dimension.
class FlatSplitter {
 public:
  FlatSplitter(const FlatRange& flat, const RunTable& table) : table_(table) {
    const std::size_t ndim = flat.shape.size();
    row_.assign(ndim + 1, 1);
    whole_.assign(ndim + 1, true);
    for (std::size_t dim = ndim; dim-- > 0;) {
      row_[dim] = row_[dim + 1] * flat.shape[dim];
      whole_[dim] = whole_[dim + 1] && table[dim].size() == 1;
    }
    global_.start.assign(ndim, 0);
    global_.count.assign(ndim, 1);
    if (flat.count > 0) split(0, flat.start, flat.start + flat.count);
  }
  [[nodiscard]] std::vector<Piece> take() { return std::move(pieces_); }

 private:
  // [begin, end) counts elements of the subtensor of dimensions `dim`, ... at global_'s prefix.
  void split(std::size_t dim, std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    if (dim == table_.size()) return emit(1);
    const std::uint64_t row = row_[dim + 1];
    std::uint64_t index = begin / row;
    if (begin % row != 0) {
      const std::uint64_t stop = std::min(end, (index + 1) * row);
      enter(dim, index, begin - index * row, stop - index * row);
      ++index;
    }
    const std::uint64_t last = end / row;
    if (whole_[dim + 1] && index < last) {
      emit_rows(dim, index, last);
    } else {
      for (; index < last; ++index) enter(dim, index, 0, row);
    }
    if (last >= index && end % row != 0) enter(dim, last, 0, end % row);
  }

  void enter(std::size_t dim, std::uint64_t index, std::uint64_t begin, std::uint64_t end) {
    const auto& runs = table_[dim];
    const auto run = std::partition_point(runs.begin(), runs.end(), [index](const Run& candidate) {
      return candidate.local + candidate.count <= index;
    });
    global_.start[dim] = run->global + (index - run->local);
    global_.count[dim] = 1;
    split(dim + 1, begin, end);
  }

  // Whole rows [first, last) of `dim`, one piece a run.
  void emit_rows(std::size_t dim, std::uint64_t first, std::uint64_t last) {
    for (std::size_t inner = dim + 1; inner < table_.size(); ++inner) {
      global_.start[inner] = table_[inner][0].global;
      global_.count[inner] = table_[inner][0].count;
    }
    for (const Run& run : table_[dim]) {
      const std::uint64_t begin = std::max(first, run.local);
      const std::uint64_t end = std::min(last, run.local + run.count);
      if (begin >= end) continue;
      global_.start[dim] = run.global + (begin - run.local);
      global_.count[dim] = end - begin;
      emit((end - begin) * row_[dim + 1]);
    }
    for (std::size_t inner = dim; inner < table_.size(); ++inner) global_.count[inner] = 1;
  }

  void emit(std::uint64_t elements) {
    if (pieces_.size() == kMaxPieces) {
      throw Trouble("layout", "flat range", "falls into too many pieces");
    }
    pieces_.push_back({{offset_}, global_});
    offset_ += elements;
  }

  const RunTable& table_;
  std::vector<std::uint64_t> row_;  // elements of one index of the dimension before
  std::vector<bool> whole_;         // dimensions from here on are one run each
  Box global_;
  std::uint64_t offset_ = 0;
  std::vector<Piece> pieces_;
};

// Dimensions that the shard has in another order: its rows are no boxes of it any more. A piece is
// what is contiguous on both sides: runs of a dimension `inner_`, with all of the dimensions after
// it.
class SwapSplitter {
 public:
  SwapSplitter(const RunTable& table, const Layout& layout, const Shape& local_shape)
      : table_(table), strides_(local_shape.size(), 1) {
    for (std::size_t dim = local_shape.size(); dim-- > 1;) {
      strides_[dim - 1] = strides_[dim] * local_shape[dim];
    }
    strides_ = swapped_back(layout, strides_);
    inner_ = table.size() - 1;
    while (inner_ > 0 && table[inner_].size() == 1 &&
           strides_[inner_ - 1] == strides_[inner_] * local_extent(table[inner_])) {
      --inner_;
    }
    if (strides_.back() != 1) inner_ = table.size();  // nothing is contiguous
    box_.start.assign(table.size(), 0);
    box_.count.assign(table.size(), 1);
    split(0, 0);
  }
  [[nodiscard]] std::vector<Piece> take() { return std::move(pieces_); }

 private:
  void split(std::size_t dim, std::uint64_t offset) {
    if (dim == table_.size()) return emit(offset);
    for (const Run& run : table_[dim]) {
      const bool whole = dim >= inner_;
      for (std::uint64_t i = 0; i < (whole ? 1 : run.count); ++i) {
        box_.start[dim] = run.global + i;
        box_.count[dim] = whole ? run.count : 1;
        split(dim + 1, offset + (run.local + i) * strides_[dim]);
      }
    }
  }

  void emit(std::uint64_t offset) {
    if (pieces_.size() == kMaxPieces) {
      throw Trouble("layout", "swapped dimensions", "fall into too many pieces");
    }
    pieces_.push_back({{offset}, box_});
  }

  const RunTable& table_;
  Shape strides_;  // of the shard, by logical dimension
  std::size_t inner_ = 0;
  Box box_;
  std::vector<Piece> pieces_;
};

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

[[noreturn]] void refuse_shapes(const Layout& layout, const std::string& why) {
  throw Trouble("layout", "\"" + to_string(layout) + "\"", why);
}

std::vector<Piece> flat_pieces(const Layout& layout, const RunTable& table,
                               const Shape& local_shape) {
  const FlatRange& flat = *layout.flat;
  const std::uint64_t elements = element_count(flat.shape);
  if (flat.start > elements || flat.count > elements - flat.start) {
    refuse_shapes(layout, "the flat range ends behind the shard of " + shape_text(flat.shape));
  }
  if (local_shape.size() != 1 || local_shape[0] != flat.count) {
    refuse_shapes(layout, "the flat range has " + std::to_string(flat.count) +
                              " elements, the record's shape is " + shape_text(local_shape));
  }
  return FlatSplitter(flat, table).take();
}

}  // namespace

std::vector<Piece> pieces_of(const Layout& layout, const Shape& global_shape,
                             const Shape& local_shape, const Coordinates& where) {
  if (layout.dims.size() != global_shape.size()) {
    refuse_shapes(layout, std::to_string(layout.dims.size()) +
                              " dimensions, but the logical tensor is " + shape_text(global_shape));
  }
  RunTable table;
  Shape compiled;
  for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
    table.push_back(runs_of(global_shape[dim], layout.dims[dim], where));
    compiled.push_back(local_extent(table.back()));
  }
  if (layout.flat && layout.swapped)
    refuse_shapes(layout, "flat ranges have no swapped dimensions");
  const Shape shard_shape = layout.flat ? layout.flat->shape : local_shape;
  if (compiled != swapped_back(layout, shard_shape)) {
    refuse_shapes(layout, "gives this rank " + shape_text(compiled) + " of " +
                              shape_text(global_shape) + ", the shard is " +
                              shape_text(shard_shape));
  }
  if (layout.swapped) return SwapSplitter(table, layout, local_shape).take();
  return layout.flat ? flat_pieces(layout, table, local_shape) : product_of(table);
}

Shape swapped_back(const Layout& layout, Shape local_shape) {
  if (layout.swapped && layout.swapped->second < local_shape.size()) {
    std::swap(local_shape[layout.swapped->first], local_shape[layout.swapped->second]);
  }
  return local_shape;
}

}  // namespace ttrace
