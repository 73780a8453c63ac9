// SPDX-License-Identifier: Apache-2.0
// Loops over the bytes of elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ttrace {

// How many of `count` elements of `size` (1, 2, 4 or 8) bytes are not the same bytes.
[[nodiscard]] std::uint64_t different_bits(const std::byte* left, const std::byte* right,
                                           std::uint64_t count, std::size_t size);
// Elements of the other byte order.
void swap_bytes(const std::byte* data, std::uint64_t count, std::size_t size, std::byte* out);

}  // namespace ttrace
