// SPDX-License-Identifier: Apache-2.0
// Which finding comes first, and which ones are only its consequences.
#pragma once

#include <optional>
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

// What computed the gradient of a module's output: the backward of whatever took it.
struct Maker {
  std::vector<std::string> modules;  // that took it; where none was recorded, the next one
  bool recorded = false;             // as taking it, in the reference
  bool around = false;  // the one module lies around: it is something that this does behind it
  std::optional<Key> agrees;  // the gradient right before it in backward order, if that agrees
};

struct OrderedFinding {
  Finding finding;
  Place place;
  // Something it is computed from had already diverged, or may have: a later finding is one of its
  // own only where all inputs are known, and agree or are too little off to explain it.
  bool inherited = false;
  std::vector<Cause> causes = {};   // of the first few (cause.hpp)
  std::optional<Maker> maker = {};  // of a gradient that a module's output was given (maker.hpp)
};

// Trace-wide ones, then missing tensors, then data flow: data, initial parameters, forward, loss,
// backward, gradient reduction and the step in backward order.
[[nodiscard]] std::vector<OrderedFinding> order_findings(std::vector<Finding> findings,
                                                         const Flow& flow,
                                                         const Alignment& alignment,
                                                         const std::vector<Outcome>& outcomes);

}  // namespace ttrace
