// SPDX-License-Identifier: Apache-2.0
// See statistics.hpp: from sums to statistics, each with the formula it is.
#include "diff/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "diff/limits.hpp"
#include "diff/statistics_elements.hpp"
#include "diff/statistics_sums.hpp"

namespace ttrace {
namespace {

constexpr double kTypeFloor = 0.1;  // sigma >= this * eps |x|
constexpr double kFewFloor = 1;     // ... where few elements make measured noise unsteady
constexpr std::uint64_t kFew = 64;
// A gradient below 4 eps times the size of its terms is zero in exact arithmetic; `floor` is
// kTermRounding eps times that size, the rounding of terms that are rounded one by one.
constexpr double kZeroFloors = 4 / kTermRounding;

double ratio(double value, double unit) {
  if (unit > 0) return std::min(value / unit, kHugeStatistic);
  return value > 0 ? kHugeStatistic : 0;
}

double square(double value) { return value * value; }

// sum (d - n) over the size of its own terms: independent errors of either sign give a normal
// variable of variance 1, whatever their sizes. The reference's own errors are subtracted, because
// rounding to a coarse grid is a function of the value and both runs share its bias.
double z_of(double errors, double noises, double error_squares, double noise_squares) {
  const double size = std::sqrt(error_squares + noise_squares);
  return size > 0 ? (errors - noises) / size : 0;
}

class Judgement {
 public:
  Judgement(const StatisticsInput& input, const StatisticLimits& limits, const TensorSums& sums)
      : input_(input), limits_(limits), sums_(sums), local_(input.method == Method::local) {
    set_level();
  }

  StatisticsResult result() {
    result_.equal = sums_.equal;
    result_.nonfinite_mismatch = sums_.nonfinite_mismatch;
    result_.elements = sums_.count;
    result_.sigma = level_.sigma;
    result_.relative_noise = nu_;
    result_.error = relative(std::sqrt(sums_.total.d2));
    result_.rounding_only = input_.tensor == TensorClass::parameter && input_.floor > 0 &&
                            level_.norm < kZeroFloors * input_.floor;
    add_norm();
    double unit_of_noise = 0;
    if (sums_.equal || sums_.count == 0) {
      unit_of_noise = std::sqrt(ratio(sums_.largest_square + level_.even, square(level_.base)));
    } else {
      add_blocks();
      add_scales();
      add_column_means();
      unit_of_noise = add_element();
    }
    resolve(std::max(unit_of_noise, kLeastNoise));
    decide();
    result_.rounding = result_.all.front().limit * input_.gain * nu_;
    return std::move(result_);
  }

 private:
  static constexpr double kLeastNoise = 0.5;  // of U: half a unit may be luck

  void set_level() {
    const auto count = static_cast<double>(std::max<std::uint64_t>(1, sums_.count));
    const double type = (sums_.count < kFew ? kFewFloor : kTypeFloor) * input_.epsilon;
    level_.norm = std::sqrt(sums_.total.x2);
    level_.rms = level_.norm / std::sqrt(count);
    level_.sigma = std::max(std::sqrt(sums_.total.n2 + square(input_.floor)), type * level_.norm);
    level_.even = std::max(0.0, square(level_.sigma) - sums_.total.n2) / count;
    level_.base = 0.1 * input_.epsilon * level_.rms + level_.sigma / std::sqrt(count);
    nu_ = level_.norm > 0 ? level_.sigma / level_.norm : 0;
  }

  [[nodiscard]] double relative(double size) const {
    return level_.norm > 0 ? size / level_.norm : size;
  }

  [[nodiscard]] double limit(StatisticKind kind, std::uint64_t elements) const {
    return limits_.of(
        {kind, input_.tensor, input_.method, input_.epsilon, sums_.matrix.vector(), elements});
  }

  void add(StatisticKind kind, double value, std::uint64_t elements, std::uint64_t index = 0,
           std::string where = "") {
    const double limit_here = limit(kind, elements);
    if (std::isfinite(limit_here)) {
      result_.all.push_back({kind, value, limit_here, index, std::move(where)});
    }
  }

  // |d| / (gain sigma)
  void add_norm() {
    add(StatisticKind::norm, ratio(std::sqrt(sums_.total.d2), input_.gain * level_.sigma),
        sums_.count);
  }

  // s_b^2 = sum_b n^2 / 2 + nu^2 sum_b x^2 / 4 + sigma^2 (share of the elements) / 4. Half is what
  // was measured there, half what the tensor's noise would be there if it went with the values or
  // were everywhere alike: one sample of a small block may be small by luck.
  [[nodiscard]] double noise_of_block(double n2, double x2, std::uint64_t elements) const {
    const auto size = static_cast<double>(elements);
    const double share = size / static_cast<double>(std::max<std::uint64_t>(1, sums_.count));
    return std::sqrt(0.5 * (n2 + level_.even * size) + 0.25 * square(nu_) * x2 +
                     0.25 * square(level_.sigma) * share);
  }

  // The largest score of |d_b| / (gain s_b) over blocks of one kind.
  template <class Value, class Elements, class Where>
  void add_largest(StatisticKind kind, std::size_t blocks, Value value, Elements elements,
                   Where where) {
    double most = -1, value_of_most = 0;
    std::size_t block = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      if (elements(i) == 0) continue;
      const double here = value(i);
      const double score = here / limit(kind, elements(i));
      if (score <= most) continue;
      most = score;
      value_of_most = here;
      block = i;
    }
    if (most < 0) return;
    const auto [index, name] = where(block);
    add(kind, value_of_most, elements(block), index, name);
  }

  using Place = std::pair<std::uint64_t, std::string>;

  [[nodiscard]] double block_value(double d2, double n2, double x2, std::uint64_t elements) const {
    return ratio(std::sqrt(d2), input_.gain * noise_of_block(n2, x2, elements));
  }
  [[nodiscard]] Place shard_place(std::size_t i) const {
    return {sums_.parts[i].index, sums_.parts[i].where};
  }
  [[nodiscard]] Place column_place(std::size_t i) const {
    return {i * sums_.column_groups.each, sums_.column_groups.where("column", i)};
  }

  void add_blocks() {
    if (sums_.parts.size() > 1) {
      add_largest(
          StatisticKind::shard, sums_.parts.size(),
          [&](std::size_t i) {
            const NoiseSums& shard = sums_.shards[i];
            return block_value(shard.d2, shard.n2, shard.x2, sums_.shard_counts[i]);
          },
          [&](std::size_t i) { return sums_.shard_counts[i]; },
          [&](std::size_t i) { return shard_place(i); });
    }
    const RowSums& rows = sums_.rows;
    add_largest(
        StatisticKind::row, rows.counts.size(),
        [&](std::size_t i) {
          return block_value(rows.d2[i], rows.n2[i], rows.x2[i], rows.counts[i]);
        },
        [&](std::size_t i) { return rows.counts[i]; },
        [&](std::size_t i) {
          return Place{i * sums_.row_groups.each, sums_.row_groups.where("row", i)};
        });
    const ColumnSums& columns = sums_.columns;
    add_largest(
        StatisticKind::column, columns.counts.size(),
        [&](std::size_t i) {
          return block_value(columns.d2[i], columns.n2[i], columns.x2[i], columns.counts[i]);
        },
        [&](std::size_t i) { return columns.counts[i]; },
        [&](std::size_t i) { return column_place(i); });
  }

  // A factor must be larger than what correct kernels are biased by, and than a rounding.
  [[nodiscard]] double least_factor() const {
    return std::max(limits_.scale_effect * nu_, limits_.least_effect);
  }

  // |z| of the part, 0 where the factor itself is too small. alpha = sum d x / sum x^2.
  [[nodiscard]] double scale_value(const NoiseSums& part) const {
    if (!(part.x2 > 0)) return 0;
    const double effect = (part.dx - part.nx) / part.x2;
    if (!(std::fabs(effect) > least_factor())) return 0;
    return std::fabs(z_of(part.dx, part.nx, part.dx2, part.nx2));
  }

  void add_scales() {
    const NoiseSums& total = sums_.total;
    if (!(total.x2 > 0)) return;
    const double alpha = total.dx / total.x2;
    if (local_) {
      const double effect = (total.dx - total.nx) / total.x2;
      result_.factor = 1 + effect;
      result_.pooled = PooledTerm{z_of(total.dx, total.nx, total.dx2, total.nx2), effect, nu_};
      add(StatisticKind::scale, scale_value(total), sums_.count);
      if (sums_.parts.size() > 1) {
        add_largest(
            StatisticKind::shard_scale, sums_.parts.size(),
            [&](std::size_t i) { return scale_value(sums_.shards[i]); },
            [&](std::size_t i) { return sums_.shard_counts[i]; },
            [&](std::size_t i) { return shard_place(i); });
      }
    } else {
      result_.factor = 1 + alpha;
      if (input_.noise.size() < limits_.ensemble) return;  // the RMS of a few has heavy tails
      const double value =
          std::fabs(alpha) > limits_.least_effect ? ratio(std::fabs(alpha), factor_noise()) : 0;
      add(StatisticKind::ensemble_scale, value, sums_.count);
    }
  }

  // How far alpha is from 0 by rounding. Local: from the errors themselves, as in z. Envelope: the
  // RMS of the noise tensors' own.
  [[nodiscard]] double factor_noise() const {
    const NoiseSums& total = sums_.total;
    if (!(total.x2 > 0)) return 0;
    if (local_) return std::sqrt(total.dx2 + total.nx2) / total.x2;
    double sum = 0;
    for (const double product : sums_.noise_products) sum += square(product / total.x2);
    return std::sqrt(sum / static_cast<double>(sums_.noise_products.size()));
  }

  // |z| of the sum of each column over its rows.
  void add_column_means() {
    if (sums_.matrix.rows < limits_.column_mean_rows) return;
    const ColumnSums& columns = sums_.columns;
    add_largest(
        StatisticKind::column_mean, local_ ? columns.counts.size() : 0,
        [&](std::size_t i) {
          return std::fabs(z_of(columns.d[i], columns.n[i], columns.d2[i], columns.nn[i]));
        },
        [&](std::size_t i) { return columns.counts[i]; },
        [&](std::size_t i) { return column_place(i); });
  }

  // max |d_i| / u_i over gain U, with U the same maximum of the noise. Returns it.
  double add_element() {
    const WorstElement worst = find_worst_element(input_, sums_, level_);
    const double unit = input_.gain * std::max(worst.noise, kLeastNoise);
    add(StatisticKind::element, ratio(worst.error, unit), sums_.count, worst.index,
        "element " + std::to_string(worst.index));
    if (worst.zero_row_norm > 0) {
      add(StatisticKind::zero_row, worst.zero_row_norm, sums_.matrix.width, worst.zero_row,
          "row " + std::to_string(worst.zero_row));
    }
    return worst.noise;
  }

  void resolve(double unit_of_noise) {
    Resolution& resolution = result_.resolution;
    const Statistic& norm = result_.all.front();
    const double left = square(norm.limit) - square(norm.value);
    resolution.norm = relative(std::sqrt(std::max(0.0, left)) * input_.gain * level_.sigma);
    result_.factor_error = factor_noise();
    const double certain =
        limit(local_ ? StatisticKind::scale : StatisticKind::ensemble_scale, sums_.count);
    const double surely = certain * result_.factor_error;
    // An error that is nothing but a factor has z = sqrt(N / 3) (normal values): with few elements
    // not even that is above the limit.
    if (local_ && static_cast<double>(sums_.count) <= 3 * certain * certain) {
      resolution.factor.reset();
    } else if (local_) {
      resolution.factor = std::max(surely, least_factor());
    } else if (input_.noise.size() >= limits_.ensemble) {
      resolution.factor = std::max(surely, limits_.least_effect);
    }
    resolve_shards();
    // An element of the RMS's size in a row and a column of that RMS.
    const double unit = 2 * input_.epsilon * level_.rms + level_.base;
    const double element =
        limit(StatisticKind::element, sums_.count) * input_.gain * unit_of_noise * unit;
    resolution.element = level_.rms > 0 ? element / level_.rms : element;
  }

  void resolve_shards() {
    if (sums_.parts.size() < 2) return;
    for (std::size_t i = 0; i < sums_.parts.size(); ++i) {
      const NoiseSums& shard = sums_.shards[i];
      if (!(shard.x2 > 0)) continue;
      const double smallest = limit(StatisticKind::shard, sums_.shard_counts[i]) * input_.gain *
                              noise_of_block(shard.n2, shard.x2, sums_.shard_counts[i]) /
                              std::sqrt(shard.x2);
      result_.resolution.shard = std::max(result_.resolution.shard.value_or(0), smallest);
    }
  }

  void decide() {
    for (std::size_t i = 1; i < result_.all.size(); ++i) {
      if (result_.all[i].score() > result_.worst().score()) result_.decided = i;
    }
  }

  const StatisticsInput& input_;
  const StatisticLimits& limits_;
  const TensorSums& sums_;
  bool local_;
  Level level_;
  double nu_ = 0;
  StatisticsResult result_;
};

}  // namespace

double Statistic::score() const {
  if (limit > 0) return std::min(value / limit, kHugeStatistic);
  return value > 0 ? kHugeStatistic : 0;
}

StatisticsResult statistics(const StatisticsInput& input, const StatisticLimits& limits) {
  const TensorSums sums = sum_tensors(input);
  return Judgement(input, limits, sums).result();
}

double pooled(std::span<const PooledTerm> terms, const StatisticLimits& limits) {
  if (terms.empty()) return 0;
  double z = 0, effect = 0, noise = 0;
  for (const PooledTerm& term : terms) {
    z += term.z;
    effect += term.effect;
    noise += term.nu;
  }
  if (!(std::fabs(effect) > limits.pooled_effect * noise)) return 0;
  return z / std::sqrt(static_cast<double>(terms.size()));
}

}  // namespace ttrace
