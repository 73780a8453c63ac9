// SPDX-License-Identifier: Apache-2.0
// Logical tensors read piece by piece, as doubles, in their own row-major order: for the statistics
// that need more than two tensors at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// Boxes of at most `elements` elements that cover `shape` one after another in row-major order.
[[nodiscard]] std::vector<Box> tiles_of(const Shape& shape, std::uint64_t elements);

// Whether read_doubles can read it: bytes were kept, and the shards are proved to make it up.
[[nodiscard]] bool readable(const LogicalTensor& tensor);

void read_doubles(const LogicalTensor& tensor, const Box& box, std::vector<double>& out);

// Sum of squares of each row of the last dimension, or of `width` elements; one row for a scalar.
[[nodiscard]] std::vector<double> squares_of_rows(const LogicalTensor& tensor,
                                                  std::uint64_t width = 0);

}  // namespace ttrace
