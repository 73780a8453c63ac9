// SPDX-License-Identifier: Apache-2.0
// What each cut means, as lists of indices made by plain loops: the second opinion on layouts.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "libttrace/layout.hpp"

namespace ttrace::testing {

using Indices = std::vector<std::uint64_t>;

inline Indices slice(const Indices& list, std::uint64_t begin, std::uint64_t end) {
  Indices taken;
  for (std::uint64_t i = begin; i < end && i < list.size(); ++i) taken.push_back(list[i]);
  return taken;
}

// torch.chunk(list, ranks)[rank], [] where torch returns fewer chunks.
inline Indices chunk_oracle(const Indices& list, std::uint64_t ranks, std::uint64_t rank) {
  const std::uint64_t each = (list.size() + ranks - 1) / ranks;
  return slice(list, each * rank, each * (rank + 1));
}

inline Indices concatenate(Indices left, const Indices& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline Indices cut_oracle(const Indices& list, const Cut& cut, const AxisPosition& at) {
  if (cut.kind == CutKind::shard) return chunk_oracle(list, at.size, at.coord);
  Indices sections = cut.sections;
  if (cut.kind == CutKind::strided) sections.assign(cut.parts, list.size() / cut.parts);
  if (cut.kind == CutKind::zigzag && sections.empty()) sections = {list.size()};
  Indices mine;
  std::uint64_t begin = 0;
  for (const std::uint64_t section : sections) {
    const Indices inside = slice(list, begin, begin + section);
    begin += section;
    if (cut.kind == CutKind::zigzag) {
      mine = concatenate(mine, chunk_oracle(inside, 2 * at.size, at.coord));
      mine = concatenate(mine, chunk_oracle(inside, 2 * at.size, 2 * at.size - 1 - at.coord));
    } else {
      mine = concatenate(mine, chunk_oracle(inside, at.size, at.coord));
    }
  }
  return mine;
}

// "tp/outer2": which of 2 neighbourhoods, "tp/inner2": the place among 2 neighbours.
inline AxisPosition place_oracle(const Coordinates& where, const std::string& axis) {
  const std::size_t slash = axis.find('/');
  const AxisPosition base = where.at(axis.substr(0, slash));
  if (slash == std::string::npos) return base;
  const std::uint64_t size = std::stoull(axis.substr(slash + 6));
  const bool outer = axis.substr(slash + 1, 5) == "outer";
  return {outer ? base.coord / (base.size / size) : base.coord % size, size};
}

inline Indices dim_oracle(std::uint64_t extent, const std::vector<Cut>& cuts,
                          const Coordinates& where) {
  Indices mine(extent);
  std::iota(mine.begin(), mine.end(), std::uint64_t{0});
  for (const Cut& cut : cuts) mine = cut_oracle(mine, cut, place_oracle(where, cut.axis));
  return mine;
}

// Row-major linear index.
std::uint64_t linear(const Shape& index, const Shape& shape) {
  std::uint64_t position = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    position = position * shape[dim] + index[dim];
  return position;
}

// Calls visit(index) for each index of `shape`, in row-major order.
template <class Visit>
void for_each_index(const Shape& shape, Visit visit) {
  if (element_count(shape) == 0) return;
  Shape index(shape.size(), 0);
  for (std::uint64_t i = 0; i < element_count(shape); ++i) {
    visit(index);
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      if (++index[dim] < shape[dim]) break;
      index[dim] = 0;
    }
  }
}

}  // namespace ttrace::testing
