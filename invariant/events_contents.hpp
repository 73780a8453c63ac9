// SPDX-License-Identifier: Apache-2.0
// Contents of the tensors that a call was given: rows of their own in a file events.bin, before the
// call's.
#pragma once

#include <cstdint>
#include <span>

#include "invariant/value.hpp"

namespace ttrace::invariant {

struct Content {
  Name argument = 0;  // its place, "0", or its name
  std::int64_t hash = 0;
};

// `arguments` (an object of typed values), each with the content that is known of it as an
// attribute "data" of what it is.
[[nodiscard]] Value with_contents(Values& values, Value arguments, std::span<const Content> known);

}  // namespace ttrace::invariant
