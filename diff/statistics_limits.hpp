// SPDX-License-Identifier: Apache-2.0
// The statistics by which a tensor is judged against measured noise, and their limits as data.
// Limits were set on healthy runs of small networks under many layouts, so that none of them was
// flagged; a run that finds healthy scores above them may widen them, and never narrow them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace ttrace {

enum class StatisticKind : std::uint8_t {
  norm,            // of the whole error: anything large
  shard,           // norm of one rank's part: one rank, one head
  row,             // norm of one row of the last dimension: a token, a mask
  column,          // norm over all rows of one index of the last dimension: a feature
  element,         // the largest error of one element: a corrupted element
  scale,           // how surely the error is a multiple of the reference: a factor 1 + delta
  ensemble_scale,  // that multiple against those of the noise tensors
  shard_scale,     // `scale` of one rank's part: a factor on one rank
  column_mean,     // how surely the mean error of a column is not 0: a bias, an offset
  zero_row,        // an error in a row of a parameter's gradient that must be exactly zero
};
inline constexpr std::size_t kStatisticKinds = 10;

[[nodiscard]] std::string_view name_of(StatisticKind kind);

// Where a tensor comes from, as far as limits care.
enum class TensorClass : std::uint8_t {
  ordinary,
  parameter,         // a parameter's gradient
  softmax_backward,  // leaves the backward pass of a softmax: dQ, dK, dV, router logits' gradients
};

// Against what the error is taken.
enum class Method : std::uint8_t {
  local,    // a replay of the candidate's own tensors: the rounding of one module
  envelope  // the reference run: the rounding of everything before
};

// What the limit of one value depends on.
struct LimitQuery {
  StatisticKind kind = StatisticKind::norm;
  TensorClass tensor = TensorClass::ordinary;
  Method method = Method::local;
  double epsilon = 0;
  bool vector = false;         // the tensor has no rows
  std::uint64_t elements = 0;  // of the block (shard, row, column)
};

struct StatisticLimits {
  // By method: [0] local, [1] envelope. Infinite: the statistic is not used.
  using PerMethod = std::array<double, 2>;
  static constexpr double kUnused = std::numeric_limits<double>::infinity();

  PerMethod norm{2.5, 3};
  PerMethod shard{4.5, 5};
  PerMethod row{5, 5};
  PerMethod column{5, 5};
  PerMethod element{7, 6};
  PerMethod scale{7, kUnused};
  PerMethod ensemble_scale{kUnused, 10};
  PerMethod shard_scale{7, kUnused};
  PerMethod column_mean{7, kUnused};

  // Softmax's backward pass cancels, and correct kernels place its rounding differently.
  double softmax_row = 8;
  double softmax_column = 7;
  double softmax_element = 16;
  double vector_element = 10;
  // Norms of few elements have heavy tails.
  std::uint64_t small_block = 32;
  double small_block_limit = 7;
  // A shard's scale must also explain a share of its error that does not shrink with its size.
  double shard_scale_growth = 0.16;  // times sqrt(elements)
  // Many elements make any bias certain, however small: a factor must be larger than this times the
  // relative noise, and than a rounding of the sums.
  double scale_effect = 0.4;
  double least_effect = 0x1p-22;
  std::uint64_t ensemble = 8;           // noise tensors that ensemble_scale needs
  std::uint64_t column_mean_rows = 64;  // rows that column_mean needs
  double pooled = 6;                    // of `pooled`
  double pooled_effect = 0.08;          // the mean effect, times the relative noise
  // The narrower the type, the more there is to see; where there is enough, margins can be wide.
  double fine_epsilon = 0x1p-23;
  double fine_factor = 1.5;
  // What `widen` has learnt, by StatisticKind.
  std::array<double, kStatisticKinds> widened{1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

  [[nodiscard]] double of(const LimitQuery& query) const;
};

// The largest score (value / limit) of one statistic in runs that are known to be right.
struct HealthyScore {
  StatisticKind kind = StatisticKind::norm;
  double score = 0;
};

// The limits, widened so that every healthy score is at most 1 / margin. Never narrower.
[[nodiscard]] StatisticLimits widen(const StatisticLimits& limits,
                                    const std::vector<HealthyScore>& healthy, double margin = 1.25);

}  // namespace ttrace
