// SPDX-License-Identifier: Apache-2.0
// A later iteration that is judged by limits which count the roundings of one: it must begin, up to
// one more rounding, with equal parameters.
#pragma once

#include <vector>

#include "diff/align.hpp"
#include "diff/limits.hpp"
#include "diff/stream.hpp"

namespace ttrace {

// How far the parameters of an iteration after 0 are apart, in epsilons of their type: the largest
// of all. Up to one, this widens the limits by what it adds to them; beyond it throws Trouble,
// because rounding grows through the optimizer and these limits know nothing of it. 0, and nothing
// done, for limits that are the user's or measured.
double allow_drift(const Alignment& alignment, const std::vector<PairMetrics>& measured,
                   const Trace& candidate, Limits& limits);

}  // namespace ttrace
