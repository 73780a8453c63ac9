// SPDX-License-Identifier: Apache-2.0
// Invariants that follow from others are left out: they would fail with those and say less.
#pragma once

#include <cstdint>
#include <vector>

#include "invariant/invariant.hpp"

namespace ttrace::invariant {

// How many were dropped.
std::uint64_t drop_implied(const Values& values, std::vector<Invariant>& invariants);

}  // namespace ttrace::invariant
