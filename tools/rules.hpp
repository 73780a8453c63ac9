// SPDX-License-Identifier: Apache-2.0
// --layout FILE of the programs that read traces.
#pragma once

#include <string>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// The rules, none where `file` is empty. Those that say nothing about these traces are noted: a
// misspelt name must not look like a rule that was followed.
[[nodiscard]] std::vector<LayoutRule> rules_for(const std::string& file,
                                                const std::vector<const Trace*>& traces);

}  // namespace ttrace
