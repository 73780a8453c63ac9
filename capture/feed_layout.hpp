// SPDX-License-Identifier: Apache-2.0
// Whether the layout beside a tensor can be read, by feeding and by every tool later.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// "" where it can, or where there is none.
[[nodiscard]] std::string layout_problem(std::string_view layout);

}  // namespace ttrace
