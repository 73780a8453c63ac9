// SPDX-License-Identifier: Apache-2.0
// See statistics_elements.hpp. Tiles come in row-major order, so one row at a time is open.
#include "diff/statistics_elements.hpp"

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

double rms(double squares, std::uint64_t count) {
  return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

class ElementSearch {
 public:
  ElementSearch(const StatisticsInput& input, const TensorSums& sums, const Level& level)
      : sums_(sums), level_(level), zero_rows_(input.tensor == TensorClass::parameter) {
    // A vector is its own row, and each element its own column: r c / t is |x_i| once more.
    unit_.epsilon = sums.matrix.vector() ? 2 * input.epsilon : input.epsilon;
    unit_.base = level.base;
    unit_.even = level.even;
    for (std::uint64_t group = 0; group < sums.column_groups.groups; ++group) {
      columns_.push_back(rms(sums.columns.x2[group], sums.columns.counts[group]));
    }
  }

  void add(const NoiseTile& tile) {
    for (std::uint64_t offset = 0; offset < tile.count;) {
      const std::uint64_t flat = tile.first + offset;
      const std::uint64_t length =
          sums_.matrix.vector()
              ? tile.count
              : std::min(tile.count - offset, sums_.matrix.width - flat % sums_.matrix.width);
      const NoiseRun run = tile.run(offset, length);
      look_at(run, flat);
      if (zero_rows_ && !sums_.matrix.vector()) watch_zeros(run, flat / sums_.matrix.width);
      offset += length;
    }
  }

  WorstElement finish() {
    close_row();
    worst_.noise = std::sqrt(worst_.noise);
    return worst_;
  }

 private:
  void look_at(const NoiseRun& run, std::uint64_t flat) {
    ElementUnit unit = unit_;
    unit.columns = columns_of(run, flat);
    if (!sums_.matrix.vector() && level_.rms > 0) {
      const std::uint64_t row = flat / sums_.matrix.width / sums_.row_groups.each;
      unit.row = rms(sums_.rows.x2[row], sums_.rows.counts[row]) / level_.rms;
    }
    const ElementMaxima maxima = loops_.element_maxima(run, unit);
    worst_.noise = std::max(worst_.noise, maxima.noise);
    if (maxima.error <= worst_.error) return;
    worst_.error = maxima.error;
    worst_.index = flat + find_error(run, unit, maxima.error);
  }

  const double* columns_of(const NoiseRun& run, std::uint64_t flat) {
    if (!sums_.matrix.vector() && sums_.column_groups.each == 1) {
      return columns_.data() + flat % sums_.matrix.width;
    }
    expanded_.assign(run.count, 0.0);
    if (sums_.matrix.vector()) return expanded_.data();
    for (std::size_t i = 0; i < run.count; ++i) {
      expanded_[i] = columns_[(flat % sums_.matrix.width + i) / sums_.column_groups.each];
    }
    return expanded_.data();
  }

  void watch_zeros(const NoiseRun& run, std::uint64_t row) {
    if (row != row_) {
      close_row();
      row_ = row;
    }
    if (!row_is_zero_) return;
    row_is_zero_ = !any_nonzero(run.x, run.count) && !any_nonzero(run.squares, run.count);
    if (row_is_zero_) row_squares_ += dot(run.d, run.d, run.count);
  }

  void close_row() {
    const double norm = row_is_zero_ ? std::sqrt(row_squares_) : 0;
    if (norm > worst_.zero_row_norm) {
      worst_.zero_row_norm = norm;
      worst_.zero_row = row_;
    }
    row_is_zero_ = true;
    row_squares_ = 0;
  }

  const TensorSums& sums_;
  const Level& level_;
  const NoiseLoops& loops_ = *noise_loops().front();
  bool zero_rows_;
  ElementUnit unit_;
  std::vector<double> columns_, expanded_;
  WorstElement worst_;
  std::uint64_t row_ = 0;
  bool row_is_zero_ = true;
  double row_squares_ = 0;
};

}  // namespace

WorstElement find_worst_element(const StatisticsInput& input, const TensorSums& sums,
                                const Level& level) {
  TileReader reader(input, [](const Box&) { return true; });
  ElementSearch search(input, sums, level);
  NoiseTile tile;
  while (reader.next(tile)) search.add(tile);
  return search.finish();
}

}  // namespace ttrace
