// SPDX-License-Identifier: Apache-2.0
// A bfloat16 parameter is its fp32 master, rounded: after every step, to the last bit, on
// whichever side and in whatever layout. Needs no other run.
#pragma once

#include <string>
#include <vector>

#include "diff/align.hpp"

namespace ttrace {

// A finding for each parameter after the step that is not its master rounded to nearest even.
// `name`: "" for the candidate, else said before each message.
[[nodiscard]] std::vector<Finding> unrounded_masters(const Side& side, const std::string& filter,
                                                     const std::string& name);

}  // namespace ttrace
