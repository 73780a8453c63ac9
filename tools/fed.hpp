// SPDX-License-Identifier: Apache-2.0
// Whether a replay was one. A command whose tensors nothing overwrites (a program on the C
// interface) computes its own ones, and these would agree with themselves.
#pragma once

#include <cstdint>
#include <optional>

#include "libttrace/trace.hpp"

namespace ttrace {

// A rank of the trace that no tensor of a pack reached; nullopt: there is none.
[[nodiscard]] std::optional<std::int32_t> unfed_rank(const Trace& replay);

}  // namespace ttrace
