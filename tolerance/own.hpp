// SPDX-License-Identifier: Apache-2.0
// Limits for a candidate against the reference's replay of it, in the run's own precision. What the
// two may differ by is the rounding of one module, whatever the depth: most tensors of a healthy
// run are bit-equal, and the others stay below a few epsilons. docs/tolerance.md has the numbers.
#pragma once

#include "diff/align.hpp"
#include "diff/flow.hpp"
#include "diff/limits.hpp"

namespace ttrace {

[[nodiscard]] Limits own_limits(const Alignment& alignment, const Flow& flow);

}  // namespace ttrace
