// SPDX-License-Identifier: Apache-2.0
// The geometry of comparing two shards: where two pieces overlap, and the contiguous runs of that
// overlap in both shards at once. All offsets and strides count elements.
#pragma once

#include <cstdint>

#include "libttrace/layout.hpp"

namespace ttrace {

// Where a box lies in a packed, row-major array.
struct View {
  std::uint64_t offset = 0;
  Shape strides;
};

// Where `box`, which lies within the piece, is in the shard. A piece of a flattened shard (its
// local start is one number, whatever the dimensions of shard and tensor) holds its box packed.
[[nodiscard]] View view_in_shard(const Piece& piece, const Shape& local_shape, const Box& box);
[[nodiscard]] View view_in_tensor(const Shape& shape, const Box& box);

// A run: `count` elements that are contiguous in both shards and in the logical tensor.
struct Overlap {
  std::uint64_t reference = 0;
  std::uint64_t candidate = 0;
  std::uint64_t logical = 0;
  std::uint64_t count = 0;
};

// Steps through the runs of a box, in row-major order:  Runs runs(...); while (runs.next(run)) ...
// All have the same length.
class Runs {
 public:
  Runs(const Shape& count, const View& reference, const View& candidate, const View& logical);
  [[nodiscard]] bool next(Overlap& run);
  [[nodiscard]] std::uint64_t length() const { return at_.count; }
  // The next is number `run`, which there must be.
  void seek(std::uint64_t run);

 private:
  struct Dimension {
    std::uint64_t count, reference, candidate, logical;  // extent and strides
  };
  std::vector<Dimension> outer_;
  std::vector<std::uint64_t> index_;
  Overlap first_, at_;
  bool more_ = true;
};

}  // namespace ttrace
