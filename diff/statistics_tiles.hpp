// SPDX-License-Identifier: Apache-2.0
// The tensors of a StatisticsInput as tiles of doubles: reference, error and noise of the same
// elements, in row-major order, whatever the layouts they are stored in.
#pragma once

#include <cstdint>
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
// on a side are 0 in all arrays, and marked.
struct NoiseTile {
  Box box;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::vector<double> x, d;
  std::vector<std::vector<double>> noise;  // less x, one array a noise tensor
  std::vector<double> squares;             // their mean, and ExtraNoise
  bool skips = false;                      // `skipped` has marks
  std::vector<std::uint8_t> skipped;
  std::uint64_t mismatched = 0;  // of those skipped: not the same on both sides

  [[nodiscard]] NoiseRun run(std::uint64_t offset, std::uint64_t size) const;
  [[nodiscard]] std::uint64_t skipped_in(std::uint64_t offset, std::uint64_t size) const;
};

class TileReader {
 public:
  explicit TileReader(const StatisticsInput& input);
  [[nodiscard]] bool next(NoiseTile& tile);

 private:
  void skip_nonfinite(NoiseTile& tile) const;
  void subtract(NoiseTile& tile) const;
  void add_extra(NoiseTile& tile) const;

  const StatisticsInput& input_;
  Matrix matrix_;
  DoubleReader reference_, candidate_;
  std::vector<DoubleReader> noise_;
  std::vector<Box> boxes_;
  std::size_t at_ = 0;
  std::uint64_t first_ = 0;
};

}  // namespace ttrace
