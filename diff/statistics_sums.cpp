// SPDX-License-Identifier: Apache-2.0
// See statistics_sums.hpp. A tile is cut where parts of the candidate are, into runs of neighbours
// of one row that one rank made; a run adds once to its shard, its row and its columns. The order
// is that of the parts in each tile, also where it comes in pieces.
#include "diff/statistics_sums.hpp"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

constexpr std::uint64_t kMostGroups = 65536;

class Summation {
 public:
  Summation(TensorSums& sums, bool products)
      : sums_(sums), loops_(*noise_loops().front()), products_(products) {
    for (std::size_t part = 0; part < sums_.parts.size(); ++part) {
      for (const Box& box : sums_.parts[part].boxes) boxes_.push_back({part, box, {}});
    }
    product_lanes_.resize(sums_.noise_products.size());
  }

  // Whether pieces add to each row and each column in the order of the whole tile: they do where
  // all parts have the same rows of it.
  [[nodiscard]] bool splits(const Box& tile) const {
    const auto same_rows = [&](const PartBox& part) {
      const std::optional<Box> common = intersection(part.box, tile);
      if (!common || volume(*common) == 0) return true;
      return std::equal(tile.count.begin(), tile.count.end() - 1, common->count.begin());
    };
    const bool own_rows = sums_.row_groups.each == 1 || boxes_.size() == 1;
    return own_rows && std::all_of(boxes_.begin(), boxes_.end(), same_rows);
  }

  void add(const NoiseTile& tile) {
    sums_.nonfinite_mismatch = sums_.nonfinite_mismatch || tile.mismatched > 0;
    sums_.equal = sums_.equal && tile.mismatched == 0 && !tile.any_error;
    sums_.largest_square = std::max(sums_.largest_square, tile.largest_square);
    if (products_) add_products(tile);
    for (PartBox& part : boxes_) {
      const std::optional<Box> common = intersection(part.box, tile.box);
      if (common && volume(*common) > 0) add_box(tile, part, *common);
    }
    if (tile.last) end_tile();
  }

 private:
  // A box of a part, and the sums of its runs in this tile.
  struct PartBox {
    std::size_t part;
    Box box;
    std::vector<NoiseSums> runs;
  };

  void add_products(const NoiseTile& tile) {
    for (std::size_t i = 0; i < tile.noise.size(); ++i) {
      std::array<double, kLanes>& lanes = product_lanes_[i];
      loops_.add_products(tile.noise[i].data(), tile.x.data(), tile.count, tile.place % kLanes,
                          lanes.data());
      if (!tile.last) continue;
      sums_.noise_products[i] += sum_lanes(lanes.data());
      lanes = {};
    }
  }

  void end_tile() {
    for (PartBox& part : boxes_) {
      for (const NoiseSums& sums : part.runs) {
        sums_.shards[part.part].add(sums);
        sums_.total.add(sums);
      }
      part.runs.clear();
    }
  }

  // Runs of the box in row-major order: `index` counts the leading dimensions like an odometer.
  void add_box(const NoiseTile& tile, PartBox& part, const Box& box) {
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

  void add_run(const NoiseTile& tile, PartBox& part, std::uint64_t offset, std::uint64_t length) {
    const NoiseRun run = tile.run(offset, length);
    const std::uint64_t first = (tile.first + offset) % sums_.matrix.width;
    const bool each = !sums_.matrix.vector() && sums_.column_groups.each == 1;
    const ColumnArrays columns = each ? columns_at(first) : ColumnArrays{};
    const NoiseSums sums = loops_.add_run(run, each ? &columns : nullptr);
    part.runs.push_back(sums);
    const std::uint64_t counted = length - tile.skipped_in(offset, length);
    sums_.shard_counts[part.part] += counted;
    sums_.count += counted;
    if (sums_.matrix.vector()) return;
    const std::uint64_t row = (tile.first + offset) / sums_.matrix.width / sums_.row_groups.each;
    sums_.rows.x2[row] += sums.x2;
    sums_.rows.d2[row] += sums.d2;
    sums_.rows.n2[row] += sums.n2;
    sums_.rows.counts[row] += counted;
    if (!each) add_to_groups(run, first);
    if (tile.skips) leave_out(tile, run, offset, first);
  }

  [[nodiscard]] ColumnArrays columns_at(std::uint64_t group) const {
    ColumnSums& sums = sums_.columns;
    return {sums.x2.data() + group, sums.d2.data() + group, sums.n2.data() + group,
            sums.d.data() + group,  sums.n.data() + group,  sums.nn.data() + group};
  }

  void add_to_groups(const NoiseRun& run, std::uint64_t first) const {
    for (std::size_t i = 0; i < run.count; ++i) {
      const ColumnArrays columns = columns_at((first + i) / sums_.column_groups.each);
      kScalarNoiseLoops.add_run(run.part(i, 1), &columns);
    }
  }

  void leave_out(const NoiseTile& tile, const NoiseRun& run, std::uint64_t offset,
                 std::uint64_t first) const {
    for (std::size_t i = 0; i < run.count; ++i) {
      sums_.columns.counts[(first + i) / sums_.column_groups.each] -= tile.skipped[offset + i];
    }
  }

  TensorSums& sums_;
  const NoiseLoops& loops_;
  bool products_;
  std::vector<PartBox> boxes_;
  std::vector<std::array<double, kLanes>> product_lanes_;
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
  TensorSums sums(input);
  // The products say how noise tensors differ from one another.
  Summation summation(sums, input.method == Method::envelope);
  TileReader reader(input, [&](const Box& tile) { return summation.splits(tile); });
  NoiseTile tile;
  while (reader.next(tile)) summation.add(tile);
  return sums;
}

}  // namespace ttrace
