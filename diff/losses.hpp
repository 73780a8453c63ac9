// SPDX-License-Identifier: Apache-2.0
// The loss of a micro-batch that is cut over ranks. Each rank returns the loss of its own samples
// or tokens, one number that is no copy of the others' and no part of a larger tensor; their mean
// (or sum) is what the reference returns.
#pragma once

#include <optional>
#include <string>

#include "diff/align.hpp"

namespace ttrace {

struct CombinedLoss {
  double reference = 0;
  double candidate = 0;
  std::string how;  // "mean over dp", "sum over dp"
};

// Of the two ways the one nearer to what the other run has whole. nullopt when the pair is not one
// number of a forward pass, when neither run's inputs are cut, or when copies within a part
// disagree.
[[nodiscard]] std::optional<CombinedLoss> combine_loss(const Pair& pair, const Side& reference,
                                                       const Side& candidate);

}  // namespace ttrace
