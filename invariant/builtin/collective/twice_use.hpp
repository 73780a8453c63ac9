// SPDX-License-Identifier: Apache-2.0
// What becomes of a sum that was summed again: whether it does harm depends on the numbers by which
// it is divided before and afterwards.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "invariant/builtin/check.hpp"
#include "invariant/builtin/collective/gradient_flow.hpp"
#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

// What `source` put out, times `scale`, is what `calls` of `joint` put in.
struct Again {
  const Joint* source = nullptr;
  const Joint* joint = nullptr;
  std::vector<const Call*> calls;
  double scale = 1;
};

struct TwiceUse {
  bool harmless = false;
  Certainty certainty = Certainty::possible;
  std::vector<std::pair<std::string, std::string>> evidence;
};

// `chain`: the calls of all that were found in this iteration.
[[nodiscard]] TwiceUse use_of(const Evidence& evidence, GradientFlow& flow, const Again& again,
                              const std::set<const Collective*>& chain);

}  // namespace ttrace::builtin
