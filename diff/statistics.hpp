// SPDX-License-Identifier: Apache-2.0
// Judges one tensor against measured noise. With x the reference, d = candidate - x the error and
// n = noise - x the error of a run that is known to be right, a bug shows as an error that is
// larger than n, or ordered where rounding is not: in one rank's part, one row, one column, one
// element, or as a multiple of x. One number each (StatisticKind), each with a limit; the tensor
// differs when one of them is above its limit.
//
// The level of the noise is
//   sigma = max(sqrt(sum n^2 + floor^2), c eps |x|),   c = 0.1 (1 below 64 elements)
// where n^2 is the mean of squares over the noise tensors: no measured noise is so small that the
// rounding of the type itself would be an error. What sigma has beyond sum n^2 is spread evenly
// over the elements' n^2. nu = sigma / |x|.
//
// Nothing is held but sums: at most 65,536 an axis (beyond that, of groups of rows or columns), and
// one tile of each tensor. Results do not depend on the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diff/statistics_limits.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

// Squares to be added to n^2 of each element, equal for `width` neighbours of a row: rounding that
// no sample shows, because one kernel cancels it exactly and another does not.
struct ExtraNoise {
  std::uint64_t width = 1;      // divides the last dimension, or is it
  std::vector<double> squares;  // [row][last dimension / width]
};

// All tensors have the reference's shape, are floating and `readable` (tiles.hpp).
struct StatisticsInput {
  const LogicalTensor* reference = nullptr;  // x
  const LogicalTensor* candidate = nullptr;  // in any layout
  double scale = 1;                          // multiplies the candidate
  std::vector<const LogicalTensor*> noise;   // at least one; signed statistics take the first
  const ExtraNoise* extra = nullptr;
  double epsilon = 0;  // distance from 1 to the next value of the type the candidate stores
  double floor = 0;    // the least norm of the noise: for gradients whose terms cancel
  double gain = 1;     // of the noise: sqrt(1 + k/2) for a sum that k ranks round each for itself
  TensorClass tensor = TensorClass::ordinary;
  Method method = Method::local;
};

inline constexpr double kHugeStatistic = 1e12;  // an error where none is allowed

struct Statistic {
  StatisticKind kind = StatisticKind::norm;
  double value = 0;  // of the block with the largest score
  double limit = 0;
  std::uint64_t index = 0;  // of the block: rank (or slice), first row, first column, flat element
  std::string where;        // "rank 3", "slice 2 of 8", "row 17", "columns 6-7", "element 123"
  [[nodiscard]] double score() const;  // above 1: the tensor differs
};

// The smallest errors that would have been flagged, relative to the norm of what they are in
// (absolute where the reference is zero). None: such an error is not looked for.
struct Resolution {
  double norm = 0;
  std::optional<double> factor;  // delta of 1 + delta
  std::optional<double> shard;   // of the shard where least is seen
  double element = 0;            // of an element of the reference's RMS, in units of that RMS;
                                 // an upper bound where all elements are equal
};

// One tensor's part in a factor that many layers may share.
struct PooledTerm {
  double z = 0;       // signed `scale`
  double effect = 0;  // signed factor less 1
  double nu = 0;      // relative noise
};

struct StatisticsResult {
  bool equal = false;               // every element; then the error is 0 and `all` is the norm
  bool nonfinite_mismatch = false;  // NaN or Inf on one side, or not the same one
  std::uint64_t elements = 0;       // finite on both sides: all else is about these
  std::vector<Statistic> all;       // those that apply, by kind
  std::size_t decided = 0;          // index of the largest score
  Resolution resolution;
  double sigma = 0;
  double relative_noise = 0;   // nu
  double rounding = 0;         // the largest error that rounding explains
  double error = 0;            // |d| / |x| (absolute where x is zero)
  double factor = 1;           // by which the candidate is the reference, the noise's own taken out
  double factor_error = 0;     // standard error of `factor`
  bool rounding_only = false;  // a parameter's gradient that is zero but for rounding of its terms
  std::optional<PooledTerm> pooled;  // where `scale` applies

  [[nodiscard]] const Statistic& worst() const { return all[decided]; }
  [[nodiscard]] bool differs() const { return nonfinite_mismatch || !(worst().score() <= 1); }
};

// Throws Trouble when a tensor cannot be read.
[[nodiscard]] StatisticsResult statistics(const StatisticsInput& input,
                                          const StatisticLimits& limits);

// sum z / sqrt(count): the same small factor in every layer adds up, independent noise does not.
// 0 where the mean effect is below `pooled_effect` of the mean noise. Its limit is `pooled`, for
// its absolute value.
[[nodiscard]] double pooled(std::span<const PooledTerm> terms, const StatisticLimits& limits = {});

}  // namespace ttrace
