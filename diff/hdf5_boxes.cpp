// SPDX-License-Identifier: Apache-2.0
// See hdf5_boxes.hpp.
#include "diff/hdf5_boxes.hpp"

#include <algorithm>
#include <cstring>

#include "diff/hdf5_elements.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kBoxBytes = std::uint64_t{4} << 20;  // a side
// Larger chunks are read in parts, again and again: nobody has such chunks.
constexpr std::uint64_t kLargestChunk = std::uint64_t{64} << 20;

using Index = std::vector<std::uint64_t>;

// As large as kBoxBytes allows, in whole chunks, the last dimensions first.
Shape box_shape(const h5::Dataset& dataset) {
  const Shape& shape = dataset.extent().shape;
  const std::uint64_t size = std::max<std::uint64_t>(dataset.type().size, 1);
  Shape unit(shape.size(), 1);
  const Shape chunk = dataset.chunk();
  for (std::size_t d = 0; d < chunk.size(); ++d) unit[d] = std::min(chunk[d], shape[d]);
  if (element_count(unit) * size > kLargestChunk) unit.assign(shape.size(), 1);
  Shape box = unit;
  std::uint64_t bytes = element_count(unit) * size;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::uint64_t most = std::max<std::uint64_t>(kBoxBytes / bytes, 1);
    const std::uint64_t units = std::min(most, (shape[d] + unit[d] - 1) / unit[d]);
    box[d] = std::min(shape[d], units * unit[d]);
    bytes *= units;
  }
  return box;
}

// Calls use(start, count) for boxes that cover `shape`, in row-major order.
template <class Use>
void each_box(const Shape& shape, const Shape& box, Use use) {
  if (element_count(shape) == 0) return;
  Index start(shape.size(), 0);
  for (;;) {
    Shape count(shape.size());
    for (std::size_t d = 0; d < shape.size(); ++d) count[d] = std::min(box[d], shape[d] - start[d]);
    use(start, count);
    std::size_t d = shape.size();
    while (d-- > 0) {
      start[d] += box[d];
      if (start[d] < shape[d]) break;
      start[d] = 0;
      if (d == 0) return;
    }
    if (shape.empty()) return;
  }
}

// The box's elements in order, as runs that lie one after another in the dataset, too.
std::vector<RunPair> runs_of(const Shape& shape, const Index& start, const Shape& count) {
  std::size_t inner = shape.size();  // dimensions from here on are in one run
  std::uint64_t length = 1;
  while (inner > 0) {
    length *= count[--inner];
    if (count[inner] != shape[inner]) break;
  }
  std::vector<RunPair> runs;
  const Shape outer(count.begin(), count.begin() + static_cast<long>(inner));
  each_box(outer, Shape(inner, 1), [&](const Index& at, const Shape&) {
    std::uint64_t first = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      first = first * shape[d] + start[d] + (d < inner ? at[d] : 0);
    }
    runs.push_back({nullptr, nullptr, length, first});
  });
  return runs;
}

std::string against(const ElementView& reference, const ElementView& candidate) {
  return element_text(reference) + " against " + element_text(candidate);
}

// The element `flat` in a run, counted over all runs before it.
std::uint64_t position_in(const std::vector<RunPair>& runs, std::uint64_t flat) {
  std::uint64_t before = 0;
  for (const RunPair& run : runs) {
    if (flat >= run.first && flat < run.first + run.count) return before + flat - run.first;
    before += run.count;
  }
  return 0;
}

}  // namespace

void compare_numbers_by_boxes(const OpenDataset& reference, const OpenDataset& candidate,
                              const Backend& backend, DatasetLine& line) {
  const Shape& shape = reference.dataset.extent().shape;
  const h5::ElementType& left_type = reference.dataset.type();
  const h5::ElementType& right_type = candidate.dataset.type();
  NumberComparer comparer(backend, *line.compared_as);
  NumberMetrics& total = line.numbers;
  const Shape box = box_shape(reference.dataset);
  const auto compare_box = [&](const Index& start, const Shape& count) {
    const h5::Values left = reference.dataset.read(start, count);
    const h5::Values right = candidate.dataset.read(start, count);
    const NumberPiece one{left_type.number, left.data()}, other{right_type.number, right.data()};
    if (comparer.equal(one, other, element_count(count), total)) return;
    const std::vector<RunPair> runs = runs_of(shape, start, count);
    NumberMetrics metrics;
    comparer.measure(one, other, runs, metrics);
    const auto values_at = [&](std::uint64_t flat) {
      const std::uint64_t at = position_in(runs, flat);
      return against({left_type, left.data() + at * left_type.size, reference.object},
                     {right_type, right.data() + at * right_type.size, candidate.object});
    };
    const std::uint64_t first = total.total.first_unequal, worst = total.total.worst;
    merge_counts(total.total, metrics.total);
    total.bits_only += metrics.bits_only;
    if (total.total.first_unequal != first)
      line.first_values = values_at(total.total.first_unequal);
    if (total.total.worst != worst) line.worst_values = values_at(total.total.worst);
  };
  each_box(shape, box, compare_box);
  if (total.total.unequal == 0) return;
  // The norms of what is equal matter only now, so that equal datasets need not be measured.
  each_box(shape, box, [&](const Index& start, const Shape& count) {
    const h5::Values left = reference.dataset.read(start, count);
    const h5::Values right = candidate.dataset.read(start, count);
    NumberMetrics metrics;
    const std::vector<RunPair> runs = runs_of(shape, start, count);
    comparer.measure({left_type.number, left.data()}, {right_type.number, right.data()}, runs,
                     metrics);
    add(total.total.sums, metrics.total.sums);
  });
}

void compare_elements_by_boxes(const OpenDataset& reference, const OpenDataset& candidate,
                               DatasetLine& line) {
  const Shape& shape = reference.dataset.extent().shape;
  const h5::ElementType& left_type = reference.dataset.type();
  const h5::ElementType& right_type = candidate.dataset.type();
  const bool by_bytes =
      left_type.description == right_type.description && !h5::is_indirect(left_type);
  Metrics& total = line.numbers.total;
  each_box(shape, box_shape(reference.dataset), [&](const Index& start, const Shape& count) {
    const h5::Values left = reference.dataset.read(start, count);
    const h5::Values right = candidate.dataset.read(start, count);
    total.count += element_count(count);
    if (by_bytes && std::memcmp(left.data(), right.data(), left.size()) == 0) return;
    const std::byte* one = left.data();
    const std::byte* other = right.data();
    for (const RunPair& run : runs_of(shape, start, count)) {
      for (std::uint64_t i = 0; i < run.count; ++i) {
        const ElementView element{left_type, one, reference.object};
        const ElementView partner{right_type, other, candidate.object};
        one += left_type.size;
        other += right_type.size;
        if (equal_elements(element, partner)) continue;
        ++total.unequal;
        if (run.first + i >= total.first_unequal) continue;
        total.first_unequal = run.first + i;
        line.first_values = against(element, partner);
      }
    }
  });
}

}  // namespace ttrace
