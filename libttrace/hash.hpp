// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of bytes that come in pieces; the hash of every record and of a segment's index.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "libttrace/core/record.hpp"

struct XXH3_state_s;

namespace ttrace {

class HashStream {
 public:
  HashStream();
  void reset();
  void append(std::span<const std::byte> bytes);
  [[nodiscard]] Hash128 finish() const;  // of all bytes since the latest reset

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// 32 hex digits, high half first, as xxhsum prints it.
[[nodiscard]] std::string to_string(const Hash128& hash);

}  // namespace ttrace
