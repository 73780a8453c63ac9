// SPDX-License-Identifier: Apache-2.0
// The tensors of a StatisticsInput as tiles of doubles: reference, error and noise of the same
// elements, in row-major order, whatever the layouts they are stored in.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "diff/double_reader.hpp"
#include "diff/statistics.hpp"
#include "diff/statistics_loops.hpp"

namespace ttrace {

// A tensor as rows of its last dimension. One that has only one row or one column is a vector: its
// rows and columns would be itself and its elements.
struct Matrix {
  explicit Matrix(const Shape& shape);
  std::uint64_t rows = 1;
  std::uint64_t width = 1;
  [[nodiscard]] bool vector() const { return rows <= 1 || width <= 1; }
};

// Elements [first, first + count) of the tensor, in row-major order. Elements that are not finite
// on a side are 0 in all arrays, and marked. A tile is what sums are added over in one go; where it
// does not matter it comes in pieces of whole rows, which stay in a cache.
struct NoiseTile {
  Box box;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t place = 0;  // of the piece in its tile
  bool last = true;         // piece of its tile
  std::vector<double> x, d;
  std::vector<std::vector<double>> noise;  // less x, one array a noise tensor
  std::vector<double> squares;             // their mean, and ExtraNoise
  bool skips = false;                      // `skipped` has marks
  std::vector<std::uint8_t> skipped;
  std::uint64_t mismatched = 0;  // of those skipped: not the same on both sides
  bool any_error = false;        // d is not 0 everywhere
  double largest_square = 0;

  [[nodiscard]] NoiseRun run(std::uint64_t offset, std::uint64_t size) const;
  [[nodiscard]] std::uint64_t skipped_in(std::uint64_t offset, std::uint64_t size) const;
};

class TileReader {
 public:
  // `splits` says of a tile whether it may come in pieces.
  TileReader(const StatisticsInput& input, std::function<bool(const Box&)> splits);
  [[nodiscard]] bool next(NoiseTile& tile);

 private:
  // A tensor's part of the tile, and memory for what must be widened.
  struct Side {
    DoubleReader reader;
    StoredValues stored;
    std::vector<float> floats;
    std::vector<double> doubles;
  };

  void read_tile();
  static Values values_of(Side& side, std::uint64_t offset, std::uint64_t count);
  void subtract(NoiseTile& tile);
  void skip_nonfinite(NoiseTile& tile, const Values& reference, const Values& candidate);
  void subtract_noise(NoiseTile& tile);
  NoiseNotes add_noise(NoiseTile& tile, const Values& values, std::size_t i) const;
  static void add_squares(NoiseTile& tile, std::size_t i);
  void add_extra(NoiseTile& tile) const;

  const StatisticsInput& input_;
  std::function<bool(const Box&)> splits_;
  const NoiseLoops& loops_;
  Matrix matrix_;
  Side reference_, candidate_;
  std::vector<Side> noise_;
  std::vector<Box> boxes_, pieces_;
  std::size_t at_ = 0, piece_ = 0;  // the next
  std::uint64_t first_ = 0, offset_ = 0;
};

}  // namespace ttrace
