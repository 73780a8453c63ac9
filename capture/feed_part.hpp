// SPDX-License-Identifier: Apache-2.0
// From a whole tensor in memory to what a rank holds of it, in the type that it holds it in.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "libttrace/core/record.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {

struct Part {
  std::vector<Piece> pieces;  // of the shard
  Shape whole;
  Shape shard;
};

// The shard's elements, packed, of `element` bytes each.
[[nodiscard]] std::vector<std::byte> cut_out(std::span<const std::byte> whole, const Part& part,
                                             std::size_t element);

// Writes all elements of `data`, which are of type `from`, times `scale`, as elements of type `to`,
// rounded once. Types other than floats must be equal, and keep their values.
void store_as(DType to, DType from, double scale, std::span<const std::byte> data, std::byte* out);

[[nodiscard]] std::string text_of(const Shape& shape);  // "[4, 8]"

}  // namespace ttrace
