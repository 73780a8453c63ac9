// SPDX-License-Identifier: Apache-2.0
// Elements of one type as another that holds all their values. Tensors of different types are
// compared in such a type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "libttrace/core/dtype.hpp"

namespace ttrace {

// The type itself when both are equal; float32 for different floats of at most 32 bits, float64 for
// other floats, int64 for different integers. nullopt: a float and an integer.
[[nodiscard]] std::optional<DType> common_type(DType reference, DType candidate);

// For values that are sums of addends of this type, which the type itself may not hold.
[[nodiscard]] DType sum_type(DType type);

// `to` is float32, float64 or int64; `from` is any type of the same class that it holds.
void convert(DType from, const std::byte* data, std::uint64_t count, DType to, std::byte* out);

// into[i] += value of element i.
void add_as_double(DType from, const std::byte* data, std::uint64_t count, double* into);

}  // namespace ttrace
