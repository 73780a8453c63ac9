// SPDX-License-Identifier: Apache-2.0
// Random meshes and layouts of the whole vocabulary of dims strings, and what each rank then holds:
// element by element, from the index lists of layout_oracle.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/libttrace/layout_oracle.hpp"

namespace ttrace::testing {

struct RandomLayout {
  Shape shape;
  std::vector<std::vector<Cut>> dims;
  std::vector<std::string> partial;
  std::optional<std::pair<std::size_t, std::size_t>> swapped;
  std::string flat;  // the axis whose ranks share the flattened shard, "" for none
  std::vector<Coordinates> ranks;
};

class LayoutGenerator {
 public:
  explicit LayoutGenerator(std::uint64_t seed) : random_(seed) {}

  RandomLayout make() {
    make_mesh();
    const std::size_t ndim = 1 + below(4);
    // Extents with many divisors; small ones leave ranks without anything.
    const std::vector<std::uint64_t> extents =
        ndim < 3 ? std::vector<std::uint64_t>{1, 3, 7, 12, 16, 24, 36, 48, 60}
                 : std::vector<std::uint64_t>{1, 2, 3, 4, 5, 8, 12};
    for (std::size_t dim = 0; dim < ndim; ++dim) {
      made_.shape.push_back(extents[below(extents.size())]);
    }
    made_.dims.resize(ndim);
    for (const auto& [axis, size] : axes_) use(axis, size);
    if (ndim > 1 && below(4) == 0) {
      const std::size_t first = below(ndim - 1);
      made_.swapped = {first, first + 1 + below(ndim - first - 1)};
      made_.flat.clear();
    }
    return std::move(made_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void make_mesh() {
    std::uint64_t world = 1;
    const std::size_t count = 1 + below(4);
    for (const std::string name : {"tp", "cp", "dp", "ep"}) {
      if (axes_.size() == count) break;
      const std::uint64_t size = 1 + below(5);
      axes_.emplace_back(name, world * size > 120 ? 1 : size);
      world *= axes_.back().second;
    }
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      Coordinates where;
      std::uint64_t rest = rank;
      for (const auto& [name, size] : axes_) {
        where[name] = {rest % size, size};
        rest /= size;
      }
      made_.ranks.push_back(std::move(where));
    }
  }

  // Cuts a dimension over the axis, or two over the halves of it, or leaves copies or addends.
  void use(const std::string& axis, std::uint64_t size) {
    const std::uint64_t dice = below(10);
    if (dice == 0) return;
    if (dice == 1 && made_.partial.empty()) {
      made_.partial.push_back(axis);
    } else if (dice == 2 && made_.flat.empty() && size > 1) {
      made_.flat = axis;
    } else if (size == 4 && dice < 6) {
      cut(axis + "/outer2");
      if (below(2) == 0) cut(axis + "/inner2");
    } else {
      cut(axis);
    }
  }

  // One more cut inside of those that are there, of a kind that what they left allows.
  void cut(const std::string& axis) {
    const std::size_t dim = below(made_.dims.size());
    std::vector<Cut>& cuts = made_.dims[dim];
    std::set<std::uint64_t> lengths;
    std::uint64_t size = 1;
    for (const Coordinates& where : made_.ranks) {
      lengths.insert(dim_oracle(made_.shape[dim], cuts, where).size());
      size = place_oracle(where, axis).size;
    }
    const auto all_divide_by = [&lengths](std::uint64_t parts) {
      return std::all_of(lengths.begin(), lengths.end(),
                         [parts](std::uint64_t length) { return length % parts == 0; });
    };
    Cut made{axis, CutKind::shard, 1, {}};
    const std::uint64_t kind = below(5);
    const std::uint64_t parts = 2 + below(3);
    if (kind == 1 && all_divide_by(2 * size)) {
      made.kind = CutKind::zigzag;
    } else if (kind == 2 && all_divide_by(parts)) {
      made.kind = CutKind::strided;
      made.parts = parts;
    } else if (kind == 3 && lengths.size() == 1 && *lengths.begin() > 2) {
      made.kind = CutKind::sections;
      const std::uint64_t length = *lengths.begin();
      const std::uint64_t first = 1 + below(length - 2);
      const std::uint64_t second = 1 + below(length - first - 1);
      made.sections = {first, second, length - first - second};
    } else if (kind == 4 && lengths.size() == 1 && *lengths.begin() % (2 * size) == 0 &&
               *lengths.begin() > 2 * size) {
      made.kind = CutKind::zigzag;
      const std::uint64_t chunks = *lengths.begin() / (2 * size);
      const std::uint64_t first = 1 + below(chunks - 1);
      made.sections = {2 * size * first, 2 * size * (chunks - first)};
    }
    cuts.push_back(std::move(made));
  }

  std::mt19937_64 random_;
  std::vector<std::pair<std::string, std::uint64_t>> axes_;
  RandomLayout made_;
};

// As it is written in a declaration.
inline std::string dims_text(const RandomLayout& layout) {
  std::string text;
  for (const auto& cuts : layout.dims) {
    text += text.empty() ? "" : " ";
    if (cuts.empty()) text += "-";
    for (const Cut& cut : cuts) {
      text += (&cut == &cuts.front() ? "x[" : ",") + cut.axis;
      if (cut.kind == CutKind::zigzag) text += ":zigzag";
      if (cut.kind == CutKind::strided) text += ":/" + std::to_string(cut.parts);
      for (std::size_t i = 0; i < cut.sections.size(); ++i) {
        const std::string open = cut.kind == CutKind::zigzag ? "(" : ":(";
        text += (i == 0 ? open : ",") + std::to_string(cut.sections[i]);
      }
      if (!cut.sections.empty()) text += ")";
    }
    if (!cuts.empty()) text += "]";
  }
  if (layout.swapped) {
    text += " swap(" + std::to_string(layout.swapped->first) + "," +
            std::to_string(layout.swapped->second) + ")";
  }
  if (!layout.partial.empty()) text += " partial(" + layout.partial.front() + ")";
  return text;
}

struct HeldElements {
  Shape shape;        // of the record
  Shape unflattened;  // of the shard that a flat range is of
  std::uint64_t start = 0;
  Indices elements;  // row-major index in the logical tensor of each element, in the record's order
};

inline HeldElements held_elements(const RandomLayout& layout, const Coordinates& where) {
  std::vector<Indices> lists;
  for (std::size_t dim = 0; dim < layout.shape.size(); ++dim) {
    lists.push_back(dim_oracle(layout.shape[dim], layout.dims[dim], where));
  }
  std::vector<std::size_t> order(lists.size());  // which logical dimension a local one is
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (layout.swapped) std::swap(order[layout.swapped->first], order[layout.swapped->second]);
  HeldElements held;
  for (const std::size_t dim : order) held.shape.push_back(lists[dim].size());
  for_each_index(held.shape, [&](const Shape& local) {
    Shape global(local.size());
    for (std::size_t i = 0; i < local.size(); ++i) global[order[i]] = lists[order[i]][local[i]];
    held.elements.push_back(linear(global, layout.shape));
  });
  if (layout.flat.empty()) return held;
  // Parts that grow by one element from rank to rank, the last one takes the rest.
  const auto [coord, size] = where.at(layout.flat);
  const std::uint64_t all = held.elements.size();
  const std::uint64_t unit = all / (size * size);
  const auto edge = [&](std::uint64_t at) { return at == size ? all : at * at * unit; };
  held.unflattened = held.shape;
  held.start = edge(coord);
  held.elements = slice(held.elements, held.start, edge(coord + 1));
  held.shape = {held.elements.size()};
  return held;
}

}  // namespace ttrace::testing
