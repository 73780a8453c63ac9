// SPDX-License-Identifier: Apache-2.0
// Encoded values of a file events.bin (docs/format.md): a tag, then what it stands for.
#pragma once

#include <string_view>

#include "invariant/value.hpp"

namespace ttrace::invariant {

// Takes a value off the front of `bytes`; false when there is none: cut off, nested too deeply, an
// unknown tag. A tensor becomes a typed value with the attributes that TrainCheck gives it.
bool take_value(std::string_view& bytes, Values& values, Value& value);

}  // namespace ttrace::invariant
