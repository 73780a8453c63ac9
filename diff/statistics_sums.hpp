// SPDX-License-Identifier: Apache-2.0
// First pass over the tensors of a StatisticsInput: the sums from which all but the element's
// statistics follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diff/statistics_shards.hpp"
#include "diff/statistics_tiles.hpp"

namespace ttrace {

// An axis in at most 65,536 groups of equally many neighbours (the last may have fewer).
struct Grouping {
  explicit Grouping(std::uint64_t extent_in);
  std::uint64_t extent = 0;
  std::uint64_t each = 1;
  std::uint64_t groups = 0;
  [[nodiscard]] std::uint64_t size(std::uint64_t group) const;
  // "row 17", "rows 34-35"
  [[nodiscard]] std::string where(const std::string& name, std::uint64_t group) const;
};

struct RowSums {
  std::vector<double> x2, d2, n2;
  std::vector<std::uint64_t> counts;  // of finite elements
};
struct ColumnSums {
  std::vector<double> x2, d2, n2;
  std::vector<double> d, n, nn;  // signed error and noise, square of the signed noise
  std::vector<std::uint64_t> counts;
};

struct TensorSums {
  explicit TensorSums(const StatisticsInput& input);

  Matrix matrix;
  Grouping row_groups, column_groups;  // no groups: a vector
  std::vector<ShardPart> parts;
  std::vector<NoiseSums> shards;  // of `parts`
  std::vector<std::uint64_t> shard_counts;
  RowSums rows;
  ColumnSums columns;
  NoiseSums total;
  std::uint64_t count = 0;             // finite elements
  std::vector<double> noise_products;  // sum n_i x of each noise tensor; for an envelope
  double largest_square = 0;           // of the noise
  bool equal = true;
  bool nonfinite_mismatch = false;
};

[[nodiscard]] TensorSums sum_tensors(const StatisticsInput& input);

}  // namespace ttrace
