// SPDX-License-Identifier: Apache-2.0
// See drift.hpp. A parameter that is off by e epsilons makes of its input what one more rounding of
// e epsilons would make, and limits are numbers of roundings in epsilons: they grow by 1 + e.
#include "diff/drift.hpp"

#include <algorithm>
#include <cmath>

#include "diff/judge.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

[[noreturn]] void refuse(const Key& key, double error, const Trace& candidate) {
  throw Trouble("compare", candidate.path().string(),
                "iteration " + std::to_string(key.iteration) + " begins with other parameters (" +
                    key.module + ": relative error " + short_number(error) +
                    "), be it by rounding in earlier steps or by a bug in them; compare iteration "
                    "0, or an iteration that both runs begin from the same checkpoint, or give "
                    "--rel LIMIT");
}

}  // namespace

double allow_drift(const Alignment& alignment, const std::vector<PairMetrics>& measured,
                   const Trace& candidate, Limits& limits) {
  if (!limits.weak) return 0;
  double drift = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Key& key = alignment.pairs[i].key;
    const Metrics& total = measured[i].total;
    if (key.iteration == 0 || key.phase != Phase::param || total.unequal == 0) continue;
    const double error = std::sqrt(total.sums.error_squares / total.sums.reference_squares);
    TensorLimit& limit = limits.tensors[i];
    const bool rounded = error <= limit.own_epsilon && total.nonfinite_mismatch == 0;
    if (!rounded) refuse(key, error, candidate);
    drift = std::max(drift, error / limit.own_epsilon);
    limit.rule = Rule::relative;
    limit.relative = limit.own_epsilon;
  }
  for (std::size_t i = 0; i < limits.tensors.size(); ++i) {
    if (alignment.pairs[i].key.phase == Phase::param) continue;
    limits.tensors[i].relative *= 1 + drift;
    limits.tensors[i].own_epsilon *= 1 + drift;
  }
  return drift;
}

}  // namespace ttrace
