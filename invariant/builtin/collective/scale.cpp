// SPDX-License-Identifier: Apache-2.0
// See scale.hpp. The number is fitted by least squares, and then has to explain each element.
#include "invariant/builtin/collective/scale.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/collective/reduction.hpp"
#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {
namespace {

constexpr double kRoundings = 8;  // of half an epsilon each: a few factors, and the fit
constexpr double kSame = 0.01;
constexpr std::uint64_t kTile = 65536;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 26;  // elements that are searched
constexpr std::size_t kProbe = 8;

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

std::optional<double> scale_of(const Part& from, const Part& to, double epsilon) {
  const double scale = fit(from, to);
  if (!std::isfinite(scale) || scale == 0) return std::nullopt;
  if (!explains(scale, from, to, epsilon)) return std::nullopt;
  return scale;
}

// A few elements of a part, beginning with a large one, to be looked for.
struct Probe {
  std::uint64_t start = 0;
  std::vector<double> values;
};

Probe probe_of(const Part& part) {
  Probe probe;
  std::vector<double> first;
  ElementReader(part).read(0, std::min<std::uint64_t>(part.count, 256), first);
  const std::size_t last = first.size() - kProbe;
  for (std::size_t i = 0; i <= last; ++i) {
    if (std::abs(first[i]) > std::abs(first[probe.start])) probe.start = i;
  }
  const auto begin = first.begin() + static_cast<std::ptrdiff_t>(probe.start);
  probe.values.assign(begin, begin + kProbe);
  return probe;
}

bool fits(const Probe& probe, const double* at, double epsilon) {
  const double scale = probe.values[0] / at[0];
  if (!std::isfinite(scale) || scale == 0) return false;
  for (std::size_t i = 1; i < kProbe; ++i) {
    const double expected = scale * at[i];
    const double error = std::abs(probe.values[i] - expected);
    if (error > kRoundings * epsilon * std::abs(expected) + 1e-30) return false;
  }
  return true;
}

}  // namespace

std::optional<double> scale_within(const SegmentReader& whole_segment, const Record& larger,
                                   const SegmentReader& part_segment, const Record& smaller) {
  if (!tells(&larger) || !tells(&smaller)) return std::nullopt;
  const auto all = whole(whole_segment, &larger);
  const auto part = whole(part_segment, &smaller);
  if (!all || !part || all->count <= part->count || all->count > kLargest) return std::nullopt;
  const double rounding = std::max(epsilon(larger.dtype), epsilon(smaller.dtype));
  const Probe probe = probe_of(*part);
  ElementReader reader(*all);
  std::vector<double> values;
  const std::uint64_t places = all->count - part->count + 1;
  for (std::uint64_t first = 0; first < places; first += kTile) {
    const std::uint64_t here = std::min(kTile, places - first);
    reader.read(first + probe.start, here + kProbe - 1, values);
    for (std::uint64_t i = 0; i < here; ++i) {
      if (!fits(probe, values.data() + i, rounding)) continue;
      Part run = *all;
      run.start += first + i;
      run.count = part->count;
      if (const auto scale = scale_of(run, *part, rounding)) return scale;
    }
  }
  return std::nullopt;
}

std::optional<double> scale_between(const SegmentReader& from_segment, const Record& from,
                                    const SegmentReader& to_segment, const Record& to) {
  if (!tells(&from) || !tells(&to)) return std::nullopt;
  if (element_count(from.shape) != element_count(to.shape)) return std::nullopt;
  const double rounding = std::max(epsilon(from.dtype), epsilon(to.dtype));
  if (!may_be_scaled(from, to, rounding)) return std::nullopt;
  const auto left = whole(from_segment, &from);
  const auto right = whole(to_segment, &to);
  if (!left || !right) return std::nullopt;
  return scale_of(*left, *right, rounding);
}

bool same_scale(double left, double right) {
  return std::abs(left - right) <= kSame * std::max(std::abs(left), std::abs(right));
}

}  // namespace ttrace::builtin
