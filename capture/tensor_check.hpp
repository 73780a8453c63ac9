// SPDX-License-Identifier: Apache-2.0
// What a caller of ttrace_record may get wrong. Everything is checked in the traced process, before
// a byte enters the ring, so that the error reaches the line of code that made it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/ttrace.h"

namespace ttrace {

// What is remembered of each record of the current segment, for the aliases to come.
struct RecordedTensor {
  std::uint64_t bytes = 0;
  std::uint64_t root = 0;  // sequence of the record that holds the bytes
  std::uint8_t dtype = 0;
};

struct CheckedTensor {
  std::string problem;  // "": none
  std::string_view module;
  std::string_view slot;
  std::string_view raw_name;
  std::string_view layout;
  std::uint64_t bytes = 0;
};

// The caller's tensor in this version's struct, whatever its own version is: members that it does
// not have are zero. `microbatch` is what TTRACE_CURRENT means, `scope` what module NULL does.
[[nodiscard]] ttrace_tensor complete(const ttrace_tensor& given, std::int32_t microbatch,
                                     const char* scope);

[[nodiscard]] CheckedTensor check_tensor(const ttrace_tensor& tensor,
                                         const std::vector<RecordedTensor>& earlier);

}  // namespace ttrace
