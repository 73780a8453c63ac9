// SPDX-License-Identifier: Apache-2.0
// See statistics_tiles.hpp. read_box lets pages go after each tile, so no more than a tile of each
// tensor is in memory.
#include "diff/statistics_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "diff/convert.hpp"
#include "diff/judge.hpp"
#include "diff/parts.hpp"
#include "diff/tiles.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTileElements = 65536;  // half a MiB of doubles

bool same_nonfinite(double reference, double candidate) {
  return reference == candidate || (std::isnan(reference) && std::isnan(candidate));
}

void require(const StatisticsInput& input) {
  const auto refuse = [&](const std::string& why) {
    throw Trouble("judge", to_string(input.reference->key), why);
  };
  if (input.noise.empty()) refuse("no noise tensor was given, so no level is known");
  if (input.candidate->shape != input.reference->shape) refuse("shapes differ");
  for (const LogicalTensor* noise : input.noise) {
    if (noise->shape != input.reference->shape) refuse("a noise tensor has another shape");
  }
}

}  // namespace

Matrix::Matrix(const Shape& shape) {
  width = shape.empty() ? 1 : shape.back();
  rows = width == 0 ? 0 : element_count(shape) / width;
}

NoiseRun NoiseTile::run(std::uint64_t offset, std::uint64_t size) const {
  return {x.data() + offset, d.data() + offset, noise[0].data() + offset, squares.data() + offset,
          size};
}

std::uint64_t NoiseTile::skipped_in(std::uint64_t offset, std::uint64_t size) const {
  if (!skips) return 0;
  const auto begin = skipped.begin() + static_cast<std::ptrdiff_t>(offset);
  return static_cast<std::uint64_t>(
      std::count(begin, begin + static_cast<std::ptrdiff_t>(size), std::uint8_t{1}));
}

TileReader::TileReader(const StatisticsInput& input)
    : input_(input),
      matrix_(input.reference->shape),
      reference_(*input.reference),
      candidate_(*input.candidate),
      boxes_(tiles_of(input.reference->shape, kTileElements)) {
  require(input);
  for (const LogicalTensor* noise : input.noise) noise_.emplace_back(*noise);
}

bool TileReader::next(NoiseTile& tile) {
  if (at_ == boxes_.size()) return false;
  tile.box = boxes_[at_++];
  tile.count = volume(tile.box);
  tile.first = first_;
  first_ += tile.count;
  reference_.read(tile.box, tile.x);
  candidate_.read(tile.box, tile.d);
  if (input_.scale != 1) {
    for (double& value : tile.d) value *= input_.scale;
  }
  tile.noise.resize(noise_.size());
  for (std::size_t i = 0; i < noise_.size(); ++i) noise_[i].read(tile.box, tile.noise[i]);
  skip_nonfinite(tile);
  subtract(tile);
  if (input_.extra != nullptr) add_extra(tile);
  return true;
}

void TileReader::skip_nonfinite(NoiseTile& tile) const {
  tile.mismatched = 0;
  tile.skips = !all_finite(tile.x.data(), tile.count) || !all_finite(tile.d.data(), tile.count);
  if (tile.skips) {
    tile.skipped.assign(tile.count, 0);
    for (std::uint64_t i = 0; i < tile.count; ++i) {
      if (std::isfinite(tile.x[i]) && std::isfinite(tile.d[i])) continue;
      if (!same_nonfinite(tile.x[i], tile.d[i])) ++tile.mismatched;
      tile.skipped[i] = 1;
      tile.x[i] = tile.d[i] = 0;
      for (std::vector<double>& noise : tile.noise) noise[i] = 0;
    }
  }
  for (std::vector<double>& noise : tile.noise) {
    if (all_finite(noise.data(), tile.count)) continue;
    // Says nothing of how large rounding is here; an infinite level would let everything pass.
    for (std::uint64_t i = 0; i < tile.count; ++i) {
      if (!std::isfinite(noise[i])) noise[i] = tile.x[i];
    }
  }
}

void TileReader::subtract(NoiseTile& tile) const {
  ttrace::subtract(tile.d.data(), tile.x.data(), tile.count);
  tile.squares.assign(tile.count, 0.0);
  for (std::vector<double>& noise : tile.noise) {
    ttrace::subtract(noise.data(), tile.x.data(), tile.count);
    add_squares(noise.data(), tile.squares.data(), tile.count);
  }
  const auto tensors = static_cast<double>(tile.noise.size());
  if (tensors > 1) divide(tile.squares.data(), tensors, tile.count);
}

void TileReader::add_extra(NoiseTile& tile) const {
  const std::uint64_t groups = matrix_.width / input_.extra->width;
  for (std::uint64_t i = 0; i < tile.count; ++i) {
    const std::uint64_t row = (tile.first + i) / matrix_.width;
    const std::uint64_t column = (tile.first + i) % matrix_.width;
    if (tile.skips && tile.skipped[i] != 0) continue;
    tile.squares[i] += input_.extra->squares[row * groups + column / input_.extra->width];
  }
}

}  // namespace ttrace
