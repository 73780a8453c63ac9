// SPDX-License-Identifier: Apache-2.0
// Which finding comes first, and which ones are only its consequences.
#pragma once

#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/flow.hpp"
#include "diff/judge.hpp"

namespace ttrace {

// What may have gone wrong: one thing that explains the error, and the numbers that say so.
struct Cause {
  std::string what;
  std::string evidence;
  bool guess = false;  // the numbers fit, but something else may fit them, too
};

struct OrderedFinding {
  Finding finding;
  Place place;
  // Something it is computed from had already diverged, or may have: a later finding is one of its
  // own only where all inputs are known, and agree or are too little off to explain it.
  bool inherited = false;
  std::vector<Cause> causes = {};  // of the first few (cause.hpp)
};

// Trace-wide ones, then missing tensors, then data flow: data, initial parameters, forward, loss,
// backward, gradient reduction and the step in backward order.
[[nodiscard]] std::vector<OrderedFinding> order_findings(std::vector<Finding> findings,
                                                         const Flow& flow,
                                                         const Alignment& alignment,
                                                         const std::vector<Outcome>& outcomes);

}  // namespace ttrace
