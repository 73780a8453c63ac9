// SPDX-License-Identifier: Apache-2.0
// What a caller of ttrace_record_collective may get wrong, as tensor_check.hpp for tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/tensor_check.hpp"
#include "capture/ttrace.h"
#include "libttrace/core/message.hpp"

namespace ttrace {

struct CheckedCollective {
  std::string problem;                    // "": none
  std::array<std::string_view, 6> texts;  // in the order of the message
  CollectiveBody body;
  std::string doubt;  // it can be recorded, but its buffers are of another size; "": none
};

// `microbatch` is what TTRACE_CURRENT means, `scope` what module NULL does; `records` are those
// of the segment. The texts are views of the caller's.
[[nodiscard]] CheckedCollective check_collective(const ttrace_collective& call,
                                                 std::int32_t microbatch, std::string_view scope,
                                                 const std::vector<RecordedTensor>& records);

}  // namespace ttrace
