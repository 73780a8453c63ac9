// SPDX-License-Identifier: Apache-2.0
// See scale.hpp. The number is fitted by least squares, and then has to explain each element.
#include "invariant/builtin/collective/scale.hpp"

#include <algorithm>
#include <cmath>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/collective/reduction.hpp"
#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {
namespace {

constexpr double kRoundings = 8;  // of half an epsilon each: a few factors, and the fit
constexpr double kSame = 0.01;

// What spares the reading of most pairs: ranges and norms that do not go together.
bool may_be_scaled(const Record& from, const Record& to, double epsilon) {
  const Statistics& left = from.statistics;
  const Statistics& right = to.statistics;
  if (!(left.sum_squares > 0) || !(right.sum_squares > 0)) return false;
  const double scale = std::sqrt(right.sum_squares / left.sum_squares);
  const double largest = std::max(std::abs(left.min), std::abs(left.max));
  const double slack = scale * largest * std::max(kSame, kRoundings * epsilon);
  const auto near = [slack](double one, double other) { return std::abs(one - other) <= slack; };
  return (near(right.min, scale * left.min) && near(right.max, scale * left.max)) ||
         (near(right.min, -scale * left.max) && near(right.max, -scale * left.min));
}

double fit(const Part& from, const Part& to) {
  double product = 0;
  double squares = 0;
  for_each_tile({from, to}, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) {
      product += tile[0][i] * tile[1][i];
      squares += tile[0][i] * tile[0][i];
    }
  });
  return product / squares;
}

bool explains(double scale, const Part& from, const Part& to, double epsilon) {
  const double smallest =
      std::max(smallest_of(to.record->dtype), std::abs(scale) * smallest_of(from.record->dtype));
  bool all = true;
  for_each_tile({from, to}, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) {
      const double expected = scale * tile[0][i];
      const double limit = kRoundings / 2 * epsilon * std::abs(expected) + smallest;
      all = all && std::abs(tile[1][i] - expected) <= limit;
    }
  });
  return all;
}

}  // namespace

std::optional<double> scale_between(const SegmentReader& from_segment, const Record& from,
                                    const SegmentReader& to_segment, const Record& to) {
  if (!tells(&from) || !tells(&to)) return std::nullopt;
  if (element_count(from.shape) != element_count(to.shape)) return std::nullopt;
  const double rounding = std::max(epsilon(from.dtype), epsilon(to.dtype));
  if (!may_be_scaled(from, to, rounding)) return std::nullopt;
  const auto left = whole(from_segment, &from);
  const auto right = whole(to_segment, &to);
  if (!left || !right) return std::nullopt;
  const double scale = fit(*left, *right);
  if (!std::isfinite(scale) || scale == 0) return std::nullopt;
  if (!explains(scale, *left, *right, rounding)) return std::nullopt;
  return scale;
}

bool same_scale(double left, double right) {
  return std::abs(left - right) <= kSame * std::max(std::abs(left), std::abs(right));
}

}  // namespace ttrace::builtin
