// SPDX-License-Identifier: Apache-2.0
// Which module's backward computed a gradient that is wrong. The trace names it after the module
// whose output it is the gradient of, and that is the one module that has nothing to do with it.
#pragma once

#include <string>
#include <vector>

#include "diff/order.hpp"

namespace ttrace {

// Of gradients of outputs that are no consequence of others.
void add_makers(const Flow& flow, const Alignment& alignment, const std::vector<Outcome>& outcomes,
                std::vector<OrderedFinding>& findings);

// "`layers.1`", "what `@root` does after it"
[[nodiscard]] std::string maker_text(const Maker& maker);

}  // namespace ttrace
