// SPDX-License-Identifier: Apache-2.0
// Documents packed into one sequence, and the parts of them that context parallel ranks hold,
// written out as lists of indices.
#pragma once

#include <string>
#include <vector>

#include "test/libttrace/known_layouts.hpp"

namespace ttrace::testing {

using Lengths = std::vector<std::uint64_t>;

// Each document in 2n equal chunks, of which a rank has one from each end.
inline Indices both_ends(const Lengths& lengths, std::uint64_t rank, std::uint64_t ranks) {
  Indices mine;
  std::uint64_t begin = 0;
  for (const std::uint64_t length : lengths) {
    const std::uint64_t each = length / (2 * ranks);
    const std::uint64_t mirror = begin + length - (rank + 1) * each;
    mine = joined(mine, range(begin + rank * each, begin + (rank + 1) * each));
    mine = joined(mine, range(mirror, mirror + each));
    begin += length;
  }
  return mine;
}

inline Cutter documents_over(std::size_t dim, const std::string& axis, const Lengths& lengths) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    const auto& [coord, size] = where.at(axis);
    return take(tensor, dim, both_ends(lengths, coord, size));
  };
}

// 0, 8, 24: where each begins, and the end.
inline Tensor offsets_of(const Lengths& lengths) {
  Tensor offsets{{lengths.size() + 1}, {0}};
  for (const std::uint64_t length : lengths) {
    offsets.values.push_back(offsets.values.back() + static_cast<float>(length));
  }
  return offsets;
}

// 0, 1, 2, ..., from 0 again in each document.
inline Tensor positions_of(const Lengths& lengths) {
  Tensor positions{{1, 0}, {}};
  for (const std::uint64_t length : lengths) {
    for (std::uint64_t i = 0; i < length; ++i) positions.values.push_back(static_cast<float>(i));
  }
  positions.shape[1] = positions.values.size();
  return positions;
}

}  // namespace ttrace::testing
