// SPDX-License-Identifier: Apache-2.0
// See tiles.hpp.
#include "diff/tiles.hpp"

#include <algorithm>

#include "diff/convert.hpp"
#include "diff/parts.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = 65536;

}  // namespace

std::vector<Box> tiles_of(const Shape& shape, std::uint64_t elements) {
  // Dimensions from `inner` on fit into a tile; `inner - 1` is cut into groups of indices.
  std::size_t inner = shape.size();
  std::uint64_t row = 1;
  while (inner > 0 && row * shape[inner - 1] <= elements) row *= shape[--inner];
  if (row == 0) return {};
  if (inner == 0) return {{Shape(shape.size(), 0), shape}};

  const std::size_t split = inner - 1;
  const std::uint64_t group = std::max<std::uint64_t>(1, elements / row);
  std::vector<Box> tiles;
  Box box{Shape(shape.size(), 0), shape};
  for (std::size_t dim = 0; dim < inner; ++dim) box.count[dim] = 1;
  for (;;) {
    box.count[split] = std::min(group, shape[split] - box.start[split]);
    if (box.count[split] > 0) tiles.push_back(box);
    box.start[split] += std::max<std::uint64_t>(1, box.count[split]);
    if (box.start[split] < shape[split]) continue;
    box.start[split] = 0;
    std::size_t dim = split;
    while (dim > 0 && ++box.start[dim - 1] == shape[dim - 1]) box.start[--dim] = 0;
    if (dim == 0) return tiles;
  }
}

bool readable(const LogicalTensor& tensor) {
  for (const PlacedShard& shard : tensor.shards) {
    // Shards put one after another for want of a layout are no boxes of a logical tensor.
    const bool flat = !shard.pieces.empty() &&
                      shard.pieces[0].local_start.size() != shard.shard.record->shape.size() &&
                      !tensor.layout.swapped;
    if (flat) return false;
  }
  return kept_of(tensor) == RecordKind::full &&
         std::all_of(tensor.problems.begin(), tensor.problems.end(), [](const Finding& problem) {
           return problem.kind == FindingKind::replica_conflict;
         });
}

void read_doubles(const LogicalTensor& tensor, const Box& box, std::vector<double>& out) {
  const std::uint64_t count = volume(box);
  std::vector<std::byte> bytes(count * size_of(tensor.dtype));
  read_box(tensor, box, bytes.data());
  out.assign(count, 0.0);
  add_as_double(tensor.dtype, bytes.data(), count, out.data());
}

std::vector<double> squares_of_rows(const LogicalTensor& tensor, std::uint64_t width) {
  if (width == 0) width = tensor.shape.empty() ? 1 : tensor.shape.back();
  const std::uint64_t count = element_count(tensor.shape);
  std::vector<double> rows(width == 0 ? 0 : count / width, 0.0);
  std::vector<double> values;
  std::uint64_t index = 0;
  for (const Box& box : tiles_of(tensor.shape, kTile)) {
    read_doubles(tensor, box, values);
    for (const double value : values) {
      rows[index / width] += value * value;
      ++index;
    }
  }
  return rows;
}

}  // namespace ttrace
