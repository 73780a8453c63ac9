// SPDX-License-Identifier: Apache-2.0
// What api_contain.cpp may look for: the children that calls had in the traces.
#pragma once

#include <memory>

#include "invariant/relation.hpp"

namespace ttrace::invariant {

[[nodiscard]] std::unique_ptr<Proposer> propose_api_contain(World& world, Name relation);

}  // namespace ttrace::invariant
