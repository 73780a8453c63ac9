// SPDX-License-Identifier: Apache-2.0
// See bits.hpp.
#include "diff/bits.hpp"

#include <algorithm>
#include <cstring>

namespace ttrace {
namespace {

constexpr std::uint64_t kStretch = 65536;  // what is counted in 32 bits

template <class Bits>
std::uint64_t count_different(const std::byte* left, const std::byte* right, std::uint64_t count) {
  std::uint64_t total = 0;
  for (std::uint64_t begin = 0; begin < count; begin += kStretch) {
    const std::uint64_t end = std::min(count, begin + kStretch);
    std::uint32_t different = 0;
    for (std::uint64_t i = begin; i < end; ++i) {
      Bits one, other;
      std::memcpy(&one, left + i * sizeof(Bits), sizeof(Bits));
      std::memcpy(&other, right + i * sizeof(Bits), sizeof(Bits));
      different += one != other ? 1 : 0;
    }
    total += different;
  }
  return total;
}

template <class Bits>
Bits swapped(Bits bits) {
  if constexpr (sizeof(Bits) == 2) return __builtin_bswap16(bits);
  if constexpr (sizeof(Bits) == 4) return __builtin_bswap32(bits);
  if constexpr (sizeof(Bits) == 8) return __builtin_bswap64(bits);
  return bits;
}

template <class Bits>
void swap_all(const std::byte* data, std::uint64_t count, std::byte* out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    bits = swapped(bits);
    std::memcpy(out + i * sizeof(Bits), &bits, sizeof(Bits));
  }
}

}  // namespace

std::uint64_t different_bits(const std::byte* left, const std::byte* right, std::uint64_t count,
                             std::size_t size) {
  if (size == 1) return count_different<std::uint8_t>(left, right, count);
  if (size == 2) return count_different<std::uint16_t>(left, right, count);
  if (size == 4) return count_different<std::uint32_t>(left, right, count);
  return count_different<std::uint64_t>(left, right, count);
}

void swap_bytes(const std::byte* data, std::uint64_t count, std::size_t size, std::byte* out) {
  if (size == 1) std::memcpy(out, data, count);
  if (size == 2) swap_all<std::uint16_t>(data, count, out);
  if (size == 4) swap_all<std::uint32_t>(data, count, out);
  if (size == 8) swap_all<std::uint64_t>(data, count, out);
}

}  // namespace ttrace
