// SPDX-License-Identifier: Apache-2.0
// The modules that the calling thread is in, innermost last. They belong to the program, not to a
// capture: a scope that was entered before ttrace_open is still there behind it.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

void push_scope(std::string_view module);
[[nodiscard]] bool pop_scope();  // false: there is none
// "" when there is none; valid until this thread's next push or pop.
[[nodiscard]] const char* innermost_scope();

}  // namespace ttrace
