// SPDX-License-Identifier: Apache-2.0
// libxxhash behind a stream.
#include "libttrace/hash.hpp"

#include <xxhash.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <new>

namespace ttrace {

void HashStream::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

HashStream::HashStream() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  reset();
}

void HashStream::reset() { XXH3_128bits_reset(state_.get()); }

void HashStream::append(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Hash128 HashStream::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {hash.low64, hash.high64};
}

std::string to_string(const Hash128& hash) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return text.data();
}

}  // namespace ttrace
