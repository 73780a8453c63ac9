// SPDX-License-Identifier: Apache-2.0
// Documents packed into one sequence, and the parts of them that context parallel ranks hold,
// written out as lists of indices.
#pragma once

#include <string>
#include <vector>

#include "test/libttrace/known_layouts.hpp"

namespace ttrace::testing {

using Lengths = std::vector<std::uint64_t>;

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
