// SPDX-License-Identifier: Apache-2.0
// What a caller of ttrace_record_collective may get wrong, as tensor_check.hpp for tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "capture/ttrace.h"
#include "libttrace/core/message.hpp"

namespace ttrace {

struct CheckedCollective {
  std::string problem;                    // "": none
  std::array<std::string_view, 6> texts;  // in the order of the message
  CollectiveBody body;
};

// `microbatch` is what TTRACE_CURRENT means, `scope` what module NULL does; `records` are in the
// segment. The texts are views of the caller's.
[[nodiscard]] CheckedCollective check_collective(const ttrace_collective& call,
                                                 std::int32_t microbatch, std::string_view scope,
                                                 std::uint64_t records);

}  // namespace ttrace
