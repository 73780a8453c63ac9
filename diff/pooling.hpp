// SPDX-License-Identifier: Apache-2.0
// The same small factor in every layer: too small to show in any one of them, it adds up over all.
#pragma once

#include <vector>

#include "diff/align.hpp"
#include "diff/judge.hpp"
#include "diff/statistics_limits.hpp"

namespace ttrace {

// A finding for each output (or gradient) of the numbered blocks of a model whose signed factors,
// pooled over the blocks, exceed `limits.pooled`, where none of them is a finding by itself.
[[nodiscard]] std::vector<Finding> pooled_findings(const Alignment& alignment,
                                                   const std::vector<Outcome>& outcomes,
                                                   const StatisticLimits& limits);

}  // namespace ttrace
