// SPDX-License-Identifier: Apache-2.0
// Random arrays through every loop of the statistics (statistics_loops.hpp). The plain loops say
// what is right; everything follows from one number, which repeats a case.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "diff/statistics_loops.hpp"

namespace ttrace {

inline bool same_bits(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) == std::isnan(right);
  return std::memcmp(&left, &right, sizeof left) == 0;
}

// What one set of loops makes of a case.
struct NoiseResult {
  ErrorNotes errors;
  std::vector<NoiseNotes> noises;
  std::vector<double> x, d, n, squares, lanes;
  std::vector<std::vector<double>> columns;
  NoiseSums with_columns, alone;
  ElementMaxima maxima;
};

class NoiseCase {
 public:
  explicit NoiseCase(std::uint64_t number) : random_(number) {
    const std::uint64_t sizes[] = {below(20), below(300), below(5000)};
    count_ = sizes[below(3)];
    wild_ = below(4) == 0;
    offset_ = below(8);
    scale_ = below(3) == 0 ? 1.0 / 3 : 1;
    for (std::vector<float>& side : floats_) fill(side);
    for (std::vector<double>& side : doubles_) fill(side);
    for (bool& wide : wide_) wide = below(2) == 0;
    fill(column_scale_);
    for (double& value : column_scale_) value = std::fabs(value);
    unit_ = {below(2) == 0 ? 0x1p-24 : 0, below(2) == 0 ? 0.7 : 0, column_scale_.data() + offset_,
             below(3) == 0 ? 0 : 1e-9, below(2) == 0 ? 0 : 1e-12};
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }

  [[nodiscard]] NoiseResult run(const NoiseLoops& loops) const {
    NoiseResult result;
    for (auto* array : {&result.x, &result.d, &result.n, &result.squares}) array->resize(count_);
    result.errors =
        loops.subtract(values(0), values(1), scale_, count_, result.x.data(), result.d.data());
    for (int i = 2; i < 4; ++i) {
      result.noises.push_back(loops.add_noise(values(i), result.x.data(), count_, i == 2,
                                              result.n.data(), result.squares.data()));
    }
    const NoiseRun run{result.x.data(), result.d.data(), result.n.data(), result.squares.data(),
                       count_};
    result.columns.assign(6, std::vector<double>(count_, 0.25));
    auto& c = result.columns;
    const ColumnArrays columns{c[0].data(), c[1].data(), c[2].data(),
                               c[3].data(), c[4].data(), c[5].data()};
    result.with_columns = loops.add_run(run, &columns);
    result.alone = loops.add_run(run, nullptr);
    result.lanes.assign(kLanes, 0.5);
    loops.add_products(run.n, run.x, count_, offset_, result.lanes.data());
    result.maxima = loops.element_maxima(run, unit_);
    return result;
  }

  // "" or the name of what is not equal.
  static std::string unequal(const NoiseResult& left, const NoiseResult& right) {
    if (left.errors.finite != right.errors.finite) return "errors.finite";
    if (left.errors.nonzero != right.errors.nonzero) return "errors.nonzero";
    for (std::size_t i = 0; i < left.noises.size(); ++i) {
      if (left.noises[i].finite != right.noises[i].finite) return "noise.finite";
      if (!same_bits(left.noises[i].largest, right.noises[i].largest)) return "noise.largest";
    }
    if (!same(left.x, right.x)) return "x";
    if (!same(left.d, right.d)) return "d";
    if (!same(left.n, right.n)) return "n";
    if (!same(left.squares, right.squares)) return "squares";
    if (!same(left.lanes, right.lanes)) return "products";
    for (std::size_t i = 0; i < left.columns.size(); ++i) {
      if (!same(left.columns[i], right.columns[i])) return "columns " + std::to_string(i);
    }
    if (!same(list(left.with_columns), list(right.with_columns))) return "sums beside columns";
    if (!same(list(left.alone), list(right.alone))) return "sums";
    if (!same_bits(left.maxima.error, right.maxima.error)) return "maxima.error";
    if (!same_bits(left.maxima.noise, right.maxima.noise)) return "maxima.noise";
    return {};
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  // Behind the last value the allocation ends, so that the sanitizers see a load past it.
  template <class Real>
  void fill(std::vector<Real>& values) {
    values.resize(offset_ + count_);
    const Real specials[] = {0,
                             Real(-0.0),
                             1,
                             std::numeric_limits<Real>::denorm_min(),
                             std::numeric_limits<Real>::max(),
                             std::numeric_limits<Real>::infinity(),
                             std::numeric_limits<Real>::quiet_NaN()};
    std::uniform_real_distribution<Real> ordinary(-1, 1);
    for (Real& value : values) {
      value = ordinary(random_);
      if (below(8) == 0) value = 0;
      if (wild_ && below(64) == 0) value = specials[below(std::size(specials))];
    }
  }

  [[nodiscard]] Values values(int side) const {
    const auto at = static_cast<std::size_t>(side);
    if (wide_[at]) return {nullptr, doubles_[at].data() + offset_};
    return {floats_[at].data() + offset_, nullptr};
  }

  static bool same(const std::vector<double>& left, const std::vector<double>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!same_bits(left[i], right[i])) return false;
    }
    return left.size() == right.size();
  }

  static std::vector<double> list(const NoiseSums& sums) {
    return {sums.x2, sums.d2, sums.n2, sums.dx, sums.nx, sums.dx2, sums.nx2};
  }

  std::mt19937_64 random_;
  std::uint64_t count_ = 0, offset_ = 0;
  bool wild_ = false;  // not finite, or hardly
  double scale_ = 1;
  std::vector<float> floats_[4];
  std::vector<double> doubles_[4];
  bool wide_[4] = {};
  std::vector<double> column_scale_;
  ElementUnit unit_;
};

}  // namespace ttrace
