// SPDX-License-Identifier: Apache-2.0
// The limits of the paper (arXiv 2506.09280), as its users apply them: k * C^(L+1-l) * epsilon for
// what belongs to layer l of L on the way back, with k = 4 and C = 1.03. The paper bounds
// gradients; for activations the same growth is counted from the front: k * C^l * epsilon.
#pragma once

#include <cstdint>

namespace ttrace {

inline constexpr double kTheoremFactor = 4;
inline constexpr double kTheoremGrowth = 1.03;

// `depth` as Flow counts it, which is l: 1 for the first block and what lies before it.
[[nodiscard]] double theorem_activation_bound(double epsilon, std::uint64_t depth);
[[nodiscard]] double theorem_gradient_bound(double epsilon, std::uint64_t depth,
                                            std::uint64_t blocks);

}  // namespace ttrace
