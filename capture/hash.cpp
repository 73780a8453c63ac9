// SPDX-License-Identifier: Apache-2.0
// ttrace_hash of ttrace.h. libxxhash is compiled in: the library needs libc and nothing else.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstdint>

#pragma GCC visibility push(default)
#include "capture/ttrace.h"
#pragma GCC visibility pop

int ttrace_hash(const std::uint64_t* addresses, const std::uint64_t* sizes, std::uint64_t count,
                std::int64_t* hashes) {
  if (count != 0 && (addresses == nullptr || sizes == nullptr || hashes == nullptr)) return -EINVAL;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto* bytes = std::bit_cast<const unsigned char*>(addresses[i]);
    hashes[i] = static_cast<std::int64_t>(XXH3_64bits(bytes, sizes[i]));
  }
  return 0;
}
