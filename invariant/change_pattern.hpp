// SPDX-License-Identifier: Apache-2.0
// Old and new values of variables as invariants name them: exactly, or by a word such as
// "non_zero", because a hash of a tensor's content never comes again.
#pragma once

#include "invariant/value.hpp"

namespace ttrace::invariant {

// The value or the word that stands for it.
[[nodiscard]] Value pattern_of(Values& values, Value value);
// Whether a value that an invariant states, or a word for many, admits the one that was met.
[[nodiscard]] bool admits(const Values& values, Value pattern, Value value);

}  // namespace ttrace::invariant
