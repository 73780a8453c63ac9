// SPDX-License-Identifier: Apache-2.0
// See hdf5_boxes.hpp.
#include "diff/hdf5_boxes.hpp"

#include <algorithm>
#include <cstring>

#include "diff/hdf5_elements.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kBoxBytes = std::uint64_t{4} << 20;  // a side
// Elements that point elsewhere: what they point to may be a thousand times as large.
constexpr std::uint64_t kIndirectBytes = std::uint64_t{64} << 10;
// libhdf5 decompresses a whole chunk whatever is asked of it. Larger ones are asked for in parts,
// again and again.
constexpr std::uint64_t kLargestChunk = std::uint64_t{256} << 20;
// Both sides' chunks at once, where they are cut in different ways.
constexpr std::uint64_t kLargestUnit = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostRuns = 65536;  // of a box, in memory at a time

using Index = std::vector<std::uint64_t>;

Shape chunk_of(const h5::Dataset& dataset, const Shape& shape) {
  Shape unit = dataset.chunk();
  unit.resize(shape.size(), 1);
  for (std::size_t d = 0; d < unit.size(); ++d) unit[d] = std::min(unit[d], shape[d]);
  return unit;
}

// As large as kBoxBytes allows, in whole chunks, the last dimensions first.
Shape box_shape(const h5::Dataset& reference, const h5::Dataset& candidate, const Shape& shape) {
  const std::uint64_t size =
      std::max<std::uint64_t>(std::max(reference.type().size, candidate.type().size), 1);
  std::uint64_t wanted = h5::is_indirect(reference.type()) ? kIndirectBytes : kBoxBytes;
  Shape unit = chunk_of(reference, shape);
  const Shape other = chunk_of(candidate, shape);
  Shape both = unit;
  for (std::size_t d = 0; d < both.size(); ++d) both[d] = std::max(unit[d], other[d]);
  if (element_count(both) * size <= kLargestUnit) {
    unit = both;
  } else if (unit != other) {
    wanted = kLargestUnit / 2;  // each box reads the candidate's chunks again
  }
  if (element_count(unit) * size > kLargestChunk) unit.assign(shape.size(), 1);
  Shape box = unit;
  std::uint64_t bytes = std::max<std::uint64_t>(element_count(unit), 1) * size;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::uint64_t most = std::max<std::uint64_t>(wanted / bytes, 1);
    const std::uint64_t step = std::max<std::uint64_t>(unit[d], 1);
    const std::uint64_t units = std::min(most, (shape[d] + step - 1) / step);
    box[d] = std::min(shape[d], units * step);
    bytes *= std::max<std::uint64_t>(units, 1);
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

// Cuts a box along its first dimension so that few runs are in memory at a time: of a box that is a
// column each element is a run. Calls use(start, count, elements of the box before it).
template <class Use>
void each_slab(const Index& start, const Shape& count, Use use) {
  if (count.size() < 2) return use(start, count, 0);
  std::uint64_t inner = 1, runs = 1;
  for (std::size_t d = 1; d < count.size(); ++d) {
    inner *= count[d];
    if (d + 1 < count.size()) runs *= count[d];
  }
  const std::uint64_t rows = std::max<std::uint64_t>(kMostRuns / runs, 1);
  for (std::uint64_t row = 0; row < count[0]; row += rows) {
    Index first = start;
    Shape size = count;
    first[0] += row;
    size[0] = std::min(rows, count[0] - row);
    use(first, size, row * inner);
  }
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
                              const Shape& shape, const Backend& backend, DatasetLine& line) {
  const h5::ElementType& left_type = reference.dataset.type();
  const h5::ElementType& right_type = candidate.dataset.type();
  NumberComparer comparer(backend, *line.compared_as);
  NumberMetrics& total = line.numbers;
  const auto compare_slab = [&](const Index& start, const Shape& count, const std::byte* left,
                                const std::byte* right) {
    NumberMetrics metrics;
    const std::vector<RunPair> runs = runs_of(shape, start, count);
    comparer.measure({left_type.number, left}, {right_type.number, right}, runs, metrics);
    const auto values_at = [&](std::uint64_t flat) {
      const std::uint64_t at = position_in(runs, flat);
      return against({left_type, left + at * left_type.size, reference.references},
                     {right_type, right + at * right_type.size, candidate.references});
    };
    const std::uint64_t first = total.total.first_unequal, worst = total.total.worst;
    merge(total.total, metrics.total);
    total.bits_only += metrics.bits_only;
    if (total.total.first_unequal != first)
      line.first_values = values_at(total.total.first_unequal);
    if (total.total.worst != worst) line.worst_values = values_at(total.total.worst);
  };
  const Shape box = box_shape(reference.dataset, candidate.dataset, shape);
  each_box(shape, box, [&](const Index& start, const Shape& count) {
    const h5::Values left = reference.dataset.read(start, count);
    const h5::Values right = candidate.dataset.read(start, count);
    each_slab(start, count, [&](const Index& first, const Shape& size, std::uint64_t before) {
      compare_slab(first, size, left.data() + before * left_type.size,
                   right.data() + before * right_type.size);
    });
  });
}

void compare_elements_by_boxes(const OpenDataset& reference, const OpenDataset& candidate,
                               const Shape& shape, DatasetLine& line) {
  const h5::ElementType& left_type = reference.dataset.type();
  const h5::ElementType& right_type = candidate.dataset.type();
  const bool by_bytes = left_type == right_type && !h5::is_indirect(left_type);
  Metrics& total = line.numbers.total;
  const Shape box = box_shape(reference.dataset, candidate.dataset, shape);
  each_box(shape, box, [&](const Index& start, const Shape& count) {
    const h5::Values left = reference.dataset.read(start, count);
    const h5::Values right = candidate.dataset.read(start, count);
    total.count += element_count(count);
    if (by_bytes && std::memcmp(left.data(), right.data(), left.size()) == 0) return;
    const std::byte* one = left.data();
    const std::byte* other = right.data();
    for (const RunPair& run : runs_of(shape, start, count)) {
      for (std::uint64_t i = 0; i < run.count; ++i) {
        const ElementView element{left_type, one, reference.references};
        const ElementView partner{right_type, other, candidate.references};
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
