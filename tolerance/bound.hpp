// SPDX-License-Identifier: Apache-2.0
// Bound mode: limits from theory alone, without any extra run. An error of rounding grows with the
// square root of the number of blocks it has passed: limit = k * epsilon * sqrt(d), d counted from
// the embedding for activations and from the loss for gradients. docs/tolerance.md says where the
// constants come from. These limits are wide: "same" under them is called weak.
#pragma once

#include <cstdint>
#include <optional>

#include "diff/align.hpp"
#include "diff/limits.hpp"

namespace ttrace {

// Epsilon of the arithmetic that a type stands for: 8-bit floats are only storage between
// operations in bfloat16.
[[nodiscard]] double working_epsilon(DType type);

// The coarsest epsilon of the modules' outputs, of either side: what the run computes in, whatever
// type a gradient or a master is stored in.
[[nodiscard]] double run_epsilon(const Alignment& alignment);

[[nodiscard]] double activation_bound(double epsilon, std::uint64_t depth);
// `depth` as Flow counts it, `blocks` in the whole model.
[[nodiscard]] double gradient_bound(double epsilon, std::uint64_t depth, std::uint64_t blocks);

// How limits grow with the depth: sqrt(d), or as the theorem has it (theorem.hpp).
enum class Growth : std::uint8_t { root, theorem };

// `relative` replaces the limit of every floating tensor, floors and masks included.
[[nodiscard]] Limits bound_limits(const Alignment& alignment, const Flow& flow,
                                  std::optional<double> relative, Growth growth = Growth::root);

}  // namespace ttrace
