// SPDX-License-Identifier: Apache-2.0
// See statistics_tiles.hpp. Pages are let go after each tile, so no more than a tile of each tensor
// is in memory.
#include "diff/statistics_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "diff/convert.hpp"
#include "diff/judge.hpp"
#include "diff/parts.hpp"
#include "diff/strip.hpp"
#include "diff/tiles.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTileElements = 65536;  // half a MiB of doubles
constexpr std::uint64_t kPieceElements = 8192;  // four arrays of them are in the second cache

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

TileReader::TileReader(const StatisticsInput& input, std::function<bool(const Box&)> splits)
    : input_(input),
      splits_(std::move(splits)),
      loops_(*noise_loops().front()),
      matrix_(input.reference->shape),
      reference_{DoubleReader(*input.reference), {}, {}, {}},
      candidate_{DoubleReader(*input.candidate), {}, {}, {}},
      boxes_(tiles_of(input.reference->shape, kTileElements)) {
  require(input);
  for (const LogicalTensor* noise : input.noise) {
    noise_.push_back({DoubleReader(*noise), {}, {}, {}});
  }
}

void TileReader::read_tile() {
  const Box& box = boxes_[at_];
  reference_.stored = reference_.reader.stored(box);
  candidate_.stored = candidate_.reader.stored(box);
  for (Side& noise : noise_) noise.stored = noise.reader.stored(box);
  piece_ = 0;
  offset_ = 0;
  pieces_ = {box};
  if (box.count.empty() || !splits_(box)) return;
  pieces_ = tiles_of(box.count, std::max(kPieceElements, box.count.back()));
  for (Box& piece : pieces_) {
    for (std::size_t dim = 0; dim < box.start.size(); ++dim) piece.start[dim] += box.start[dim];
  }
}

bool TileReader::next(NoiseTile& tile) {
  if (at_ == boxes_.size()) return false;
  if (piece_ == pieces_.size()) read_tile();
  tile.box = pieces_[piece_++];
  tile.count = volume(tile.box);
  tile.first = first_;
  tile.place = offset_;
  tile.last = piece_ == pieces_.size();
  subtract(tile);
  subtract_noise(tile);
  first_ += tile.count;
  offset_ += tile.count;
  if (tile.last) ++at_;
  return true;
}

// As they are stored, or widened to floats, or, where they lie at odd addresses, copied.
Values TileReader::values_of(Side& side, std::uint64_t offset, std::uint64_t count) {
  const DType type = side.stored.type;
  const std::byte* data = side.stored.data + offset * size_of(type);
  const bool wide = type == DType::float64;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0) {
    if (wide) return {nullptr, reinterpret_cast<const double*>(data)};
    if (type == DType::float32) return {reinterpret_cast<const float*>(data), nullptr};
  }
  if (wide) {
    side.doubles.resize(count);
    convert(type, data, count, type, reinterpret_cast<std::byte*>(side.doubles.data()));
    return {nullptr, side.doubles.data()};
  }
  side.floats.resize(count);
  const bool vectors = type != DType::float32 && !strip_loops().empty();
  const std::uint64_t whole = vectors ? count / kStripStep * kStripStep : 0;
  if (whole > 0) strip_loops().front()->widen(type, data, whole, side.floats.data());
  convert(type, data + whole * size_of(type), count - whole, DType::float32,
          reinterpret_cast<std::byte*>(side.floats.data() + whole));
  return {side.floats.data(), nullptr};
}

void TileReader::subtract(NoiseTile& tile) {
  const Values reference = values_of(reference_, offset_, tile.count);
  const Values candidate = values_of(candidate_, offset_, tile.count);
  tile.x.resize(tile.count);
  tile.d.resize(tile.count);
  const ErrorNotes notes =
      loops_.subtract(reference, candidate, input_.scale, tile.count, tile.x.data(), tile.d.data());
  tile.mismatched = 0;
  tile.skips = false;
  tile.any_error = notes.nonzero;
  if (!notes.finite) skip_nonfinite(tile, reference, candidate);
}

void TileReader::skip_nonfinite(NoiseTile& tile, const Values& reference, const Values& candidate) {
  tile.skipped.assign(tile.count, 0);
  for (std::uint64_t i = 0; i < tile.count; ++i) {
    const double x = reference[i], value = candidate[i] * input_.scale;
    if (std::isfinite(x) && std::isfinite(value)) continue;
    if (!same_nonfinite(x, value)) ++tile.mismatched;
    tile.skips = true;
    tile.skipped[i] = 1;
    tile.x[i] = tile.d[i] = 0;
  }
  tile.any_error = any_nonzero(tile.d.data(), tile.count);
}

void TileReader::subtract_noise(NoiseTile& tile) {
  tile.noise.resize(noise_.size());
  tile.squares.resize(tile.count);
  for (std::size_t i = 0; i < noise_.size(); ++i) {
    std::vector<double>& noise = tile.noise[i];
    noise.resize(tile.count);
    const Values values = values_of(noise_[i], offset_, tile.count);
    const NoiseNotes notes = add_noise(tile, values, i);
    tile.largest_square = notes.largest;
    if (notes.finite && !tile.skips) continue;
    // What is not finite says nothing of how large rounding is here; an infinite level would let
    // everything pass. In what is skipped there is no noise.
    std::vector<double> usable(tile.count);
    for (std::uint64_t k = 0; k < tile.count; ++k) {
      const bool use = std::isfinite(values[k]) && !(tile.skips && tile.skipped[k] != 0);
      usable[k] = use ? values[k] : tile.x[k];
    }
    for (std::size_t before = 0; before < i; ++before) add_squares(tile, before);
    tile.largest_square = add_noise(tile, {nullptr, usable.data()}, i).largest;
  }
  if (noise_.size() > 1) {
    divide(tile.squares.data(), static_cast<double>(noise_.size()), tile.count);
  }
  if (input_.extra != nullptr) add_extra(tile);
  if (noise_.size() == 1 && input_.extra == nullptr) return;
  tile.largest_square = largest(tile.squares.data(), tile.count);
}

NoiseNotes TileReader::add_noise(NoiseTile& tile, const Values& values, std::size_t i) const {
  return loops_.add_noise(values, tile.x.data(), tile.count, i == 0, tile.noise[i].data(),
                          tile.squares.data());
}

// Once more, after those of another noise tensor were none.
void TileReader::add_squares(NoiseTile& tile, std::size_t i) {
  for (std::uint64_t k = 0; k < tile.count; ++k) {
    const double square = tile.noise[i][k] * tile.noise[i][k];
    tile.squares[k] = i == 0 ? square : tile.squares[k] + square;
  }
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
