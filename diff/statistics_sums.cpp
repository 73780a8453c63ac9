// SPDX-License-Identifier: Apache-2.0
// See statistics_sums.hpp. A tile is cut where parts of the candidate are, into runs of neighbours
// of one row that one rank made; a run adds once to its shard, its row and its columns.
#include "diff/statistics_sums.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::uint64_t kMostGroups = 65536;

class Summation {
 public:
  explicit Summation(TensorSums& sums) : sums_(sums) {}

  void add(const NoiseTile& tile) {
    sums_.nonfinite_mismatch = sums_.nonfinite_mismatch || tile.mismatched > 0;
    sums_.equal = sums_.equal && tile.mismatched == 0 && !any_nonzero(tile.d.data(), tile.count);
    sums_.largest_square = std::max(sums_.largest_square, largest(tile.squares.data(), tile.count));
    for (std::size_t i = 0; i < tile.noise.size(); ++i) {
      sums_.noise_products[i] += dot(tile.noise[i].data(), tile.x.data(), tile.count);
    }
    for (std::size_t part = 0; part < sums_.parts.size(); ++part) {
      for (const Box& box : sums_.parts[part].boxes) {
        const std::optional<Box> common = intersection(box, tile.box);
        if (common && volume(*common) > 0) add_box(tile, part, *common);
      }
    }
  }

 private:
  // Runs of the box in row-major order: `index` counts the leading dimensions like an odometer.
  void add_box(const NoiseTile& tile, std::size_t part, const Box& box) {
    const std::size_t lead = box.count.empty() ? 0 : box.count.size() - 1;
    const std::uint64_t length = box.count.empty() ? 1 : box.count.back();
    Shape index(box.start.begin(), box.start.begin() + static_cast<std::ptrdiff_t>(lead));
    for (;;) {
      add_run(tile, part, offset_of(tile.box, index, box), length);
      std::size_t dim = lead;
      while (dim > 0 && ++index[dim - 1] == box.start[dim - 1] + box.count[dim - 1]) {
        index[dim - 1] = box.start[dim - 1];
        --dim;
      }
      if (dim == 0) return;
    }
  }

  static std::uint64_t offset_of(const Box& tile, const Shape& index, const Box& box) {
    std::uint64_t offset = 0;
    for (std::size_t dim = 0; dim < index.size(); ++dim) {
      offset = offset * tile.count[dim] + index[dim] - tile.start[dim];
    }
    if (box.count.empty()) return 0;
    return offset * tile.count.back() + box.start.back() - tile.start.back();
  }

  void add_run(const NoiseTile& tile, std::size_t part, std::uint64_t offset,
               std::uint64_t length) {
    const NoiseRun run = tile.run(offset, length);
    const NoiseSums sums = sum_run(run);
    const std::uint64_t counted = length - tile.skipped_in(offset, length);
    sums_.shards[part].add(sums);
    sums_.shard_counts[part] += counted;
    sums_.total.add(sums);
    sums_.count += counted;
    if (sums_.matrix.vector()) return;
    const std::uint64_t row = (tile.first + offset) / sums_.matrix.width / sums_.row_groups.each;
    sums_.rows.x2[row] += sums.x2;
    sums_.rows.d2[row] += sums.d2;
    sums_.rows.n2[row] += sums.n2;
    sums_.rows.counts[row] += counted;
    add_to_columns(run, tile, offset);
  }

  void add_to_columns(const NoiseRun& run, const NoiseTile& tile, std::uint64_t offset) {
    const std::uint64_t first = (tile.first + offset) % sums_.matrix.width;
    const std::uint64_t each = sums_.column_groups.each;
    ColumnSums& sums = sums_.columns;
    const auto at = [&](std::uint64_t group) {
      return ColumnArrays{sums.x2.data() + group, sums.d2.data() + group, sums.n2.data() + group,
                          sums.d.data() + group,  sums.n.data() + group,  sums.nn.data() + group};
    };
    if (each == 1) {
      add_columns(run, at(first));
    } else {
      for (std::size_t i = 0; i < run.count; ++i) {
        add_columns(run.part(i, 1), at((first + i) / each));
      }
    }
    if (!tile.skips) return;
    for (std::size_t i = 0; i < run.count; ++i) {
      sums.counts[(first + i) / each] -= tile.skipped[offset + i];
    }
  }

  TensorSums& sums_;
};

}  // namespace

Grouping::Grouping(std::uint64_t extent_in)
    : extent(extent_in),
      each(std::max<std::uint64_t>(1, (extent_in + kMostGroups - 1) / kMostGroups)),
      groups((extent_in + each - 1) / each) {}

std::uint64_t Grouping::size(std::uint64_t group) const {
  return std::min(each, extent - group * each);
}

std::string Grouping::where(const std::string& name, std::uint64_t group) const {
  const std::string first = std::to_string(group * each);
  if (size(group) == 1) return name + " " + first;
  return name + "s " + first + "-" + std::to_string(group * each + size(group) - 1);
}

TensorSums::TensorSums(const StatisticsInput& input)
    : matrix(input.reference->shape),
      row_groups(matrix.vector() ? 0 : matrix.rows),
      column_groups(matrix.vector() ? 0 : matrix.width),
      parts(shard_parts(*input.candidate)),
      shards(parts.size()),
      shard_counts(parts.size(), 0),
      noise_products(input.noise.size(), 0.0) {
  for (std::vector<double>* sums : {&rows.x2, &rows.d2, &rows.n2}) {
    sums->assign(row_groups.groups, 0.0);
  }
  rows.counts.assign(row_groups.groups, 0);
  for (std::vector<double>* sums :
       {&columns.x2, &columns.d2, &columns.n2, &columns.d, &columns.n, &columns.nn}) {
    sums->assign(column_groups.groups, 0.0);
  }
  for (std::uint64_t group = 0; group < column_groups.groups; ++group) {
    columns.counts.push_back(column_groups.size(group) * matrix.rows);
  }
}

TensorSums sum_tensors(const StatisticsInput& input) {
  TileReader reader(input);
  TensorSums sums(input);
  Summation summation(sums);
  NoiseTile tile;
  while (reader.next(tile)) summation.add(tile);
  return sums;
}

}  // namespace ttrace
