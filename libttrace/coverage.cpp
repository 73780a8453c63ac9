// SPDX-License-Identifier: Apache-2.0
// Do boxes cover a shape exactly once? A grid of equal boxes, the usual case, needs one look at
// each. Else a sweep: along a dimension, between two neighbouring edges of boxes, nothing changes,
// so each such slab is settled by the same question in one dimension less.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {
namespace {

std::uint64_t end_of(const Box& box, std::size_t dim) { return box.start[dim] + box.count[dim]; }

// Joins boxes that are neighbours along `dim` and equal in all other dimensions.
void join_along(std::size_t dim, std::vector<Box>& boxes) {
  const auto others_then_start = [dim](const Box& left, const Box& right) {
    for (std::size_t other = 0; other < left.start.size(); ++other) {
      if (other == dim) continue;
      const auto left_span = std::tie(left.start[other], left.count[other]);
      const auto right_span = std::tie(right.start[other], right.count[other]);
      if (left_span != right_span) return left_span < right_span;
    }
    return left.start[dim] < right.start[dim];
  };
  std::sort(boxes.begin(), boxes.end(), others_then_start);
  std::vector<Box> joined;
  for (Box& box : boxes) {
    bool neighbours = !joined.empty() && end_of(joined.back(), dim) == box.start[dim];
    for (std::size_t other = 0; neighbours && other < box.start.size(); ++other) {
      if (other == dim) continue;
      neighbours = joined.back().start[other] == box.start[other] &&
                   joined.back().count[other] == box.count[other];
    }
    if (neighbours) {
      joined.back().count[dim] += box.count[dim];
    } else {
      joined.push_back(std::move(box));
    }
  }
  boxes = std::move(joined);
}

// Equal boxes whose starts are different multiples of their size, as many as fit: exact.
bool is_equal_grid(const Shape& shape, const std::vector<Box>& boxes) {
  const Shape& count = boxes.front().count;
  std::uint64_t cells = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::uint64_t along = shape[dim] / count[dim];
    if (shape[dim] % count[dim] != 0 || along > boxes.size() / cells) return false;
    cells *= along;
  }
  if (cells != boxes.size()) return false;
  std::vector<bool> seen(cells, false);
  for (const Box& box : boxes) {
    std::uint64_t cell = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (box.count[dim] != count[dim] || box.start[dim] % count[dim] != 0) return false;
      cell = cell * (shape[dim] / count[dim]) + box.start[dim] / count[dim];
    }
    if (seen[cell]) return false;
    seen[cell] = true;
  }
  return true;
}

class Sweep {
 public:
  Sweep(const Shape& shape, const std::vector<Box>& boxes) : shape_(shape), boxes_(boxes) {
    corner_.start.assign(shape.size(), 0);
    corner_.count = shape;
  }

  Coverage run() {
    std::vector<std::size_t> all(boxes_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    sweep(0, std::move(all));
    for (std::size_t dim = shape_.size(); dim-- > 0;) {
      join_along(dim, found_.holes);
      join_along(dim, found_.overlaps);
    }
    return std::move(found_);
  }

 private:
  // corner_ holds the slab in the dimensions before `dim`, and `members` are the boxes that cross
  // it.
  void sweep(std::size_t dim, std::vector<std::size_t> members) {
    if (members.empty()) return report(found_.holes, dim);
    if (dim == shape_.size()) {
      if (members.size() > 1) report(found_.overlaps, dim);
      return;
    }
    if (members.size() == 1 && fills_from(dim, boxes_[members[0]])) return;

    const std::vector<std::uint64_t> edges = edges_along(dim, members);
    std::sort(members.begin(), members.end(), [&](std::size_t left, std::size_t right) {
      return boxes_[left].start[dim] < boxes_[right].start[dim];
    });
    std::vector<std::size_t> active;
    std::size_t next = 0;
    for (std::size_t slab = 0; slab + 1 < edges.size(); ++slab) {
      const std::uint64_t begin = edges[slab];
      active.erase(
          std::remove_if(active.begin(), active.end(),
                         [&](std::size_t box) { return end_of(boxes_[box], dim) <= begin; }),
          active.end());
      for (; next < members.size() && boxes_[members[next]].start[dim] == begin; ++next) {
        active.push_back(members[next]);
      }
      corner_.start[dim] = begin;
      corner_.count[dim] = edges[slab + 1] - begin;
      sweep(dim + 1, active);
    }
    corner_.start[dim] = 0;
    corner_.count[dim] = shape_[dim];
  }

  bool fills_from(std::size_t dim, const Box& box) const {
    for (; dim < shape_.size(); ++dim) {
      if (box.count[dim] != shape_[dim]) return false;
    }
    return true;
  }

  std::vector<std::uint64_t> edges_along(std::size_t dim,
                                         const std::vector<std::size_t>& members) const {
    std::vector<std::uint64_t> edges{0, shape_[dim]};
    for (const std::size_t box : members) {
      edges.push_back(boxes_[box].start[dim]);
      edges.push_back(end_of(boxes_[box], dim));
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
  }

  // The slab, whole in the dimensions from `dim` on. What continues the slab before is joined at
  // once along the last swept dimension, so that a long list of slivers never exists.
  void report(std::vector<Box>& list, std::size_t dim) {
    if (dim > 0 && !list.empty()) {
      Box grown = list.back();
      const std::size_t last = dim - 1;
      if (end_of(grown, last) == corner_.start[last]) {
        grown.count[last] += corner_.count[last];
        Box expected = corner_;
        expected.start[last] = grown.start[last];
        expected.count[last] = grown.count[last];
        if (grown == expected) {
          list.back() = std::move(grown);
          return;
        }
      }
    }
    list.push_back(corner_);
  }

  const Shape& shape_;
  const std::vector<Box>& boxes_;
  Box corner_;
  Coverage found_;
};

}  // namespace

Coverage coverage(const Shape& shape, const std::vector<Box>& boxes) {
  if (element_count(shape) == 0) return {};
  std::vector<Box> filled;
  for (const Box& box : boxes) {
    if (box.start.size() != shape.size()) {
      throw Trouble("coverage", to_string(box), "has another number of dimensions than the tensor");
    }
    if (volume(box) == 0) continue;
    const std::optional<Box> inside = intersection(box, {Shape(shape.size(), 0), shape});
    if (inside != box) throw Trouble("coverage", to_string(box), "lies outside of the tensor");
    filled.push_back(box);
  }
  if (!filled.empty() && is_equal_grid(shape, filled)) return {};
  return Sweep(shape, filled).run();
}

}  // namespace ttrace
