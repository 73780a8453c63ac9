// SPDX-License-Identifier: Apache-2.0
// How large rounding is, shown by runs that are known to be right (statistics.hpp). Two kinds:
//   local     the reference program was fed the candidate's tensors twice, in the run's precision
//             and in a higher one; errors are taken against the latter, the former is the noise
//   envelope  the reference program ran with perturbed tensors; errors are against the reference
#pragma once

#include <map>
#include <vector>

#include "diff/statistics_limits.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

struct Noise {
  Method method = Method::local;
  StatisticLimits limits;
  const LogicalTensors* truth = nullptr;  // nullptr: the reference's own tensors
  std::vector<const LogicalTensors*> samples;
};

// The tensors of a run of the reference program, under the same micro-batch numbers.
[[nodiscard]] LogicalTensors tensors_like(const Trace& trace, std::int64_t iteration,
                                          const MicrobatchNumbers& numbers);

}  // namespace ttrace
