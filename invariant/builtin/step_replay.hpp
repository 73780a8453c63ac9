// SPDX-License-Identifier: Apache-2.0
// One parameter's optimizer step on one rank, computed again from what was recorded before it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "invariant/builtin/copies.hpp"
#include "invariant/builtin/formula.hpp"

namespace ttrace::builtin {

struct ReplayedTensor {
  double worst = 0;         // the largest error of an element, in units of what rounding explains
  std::uint64_t wrong = 0;  // elements off by more than rounding explains
  std::uint64_t elements = 0;
};

struct StepReplay {
  std::string unknown;                            // not empty: why nothing was replayed
  std::map<std::string, ReplayedTensor> tensors;  // "param", "exp_avg", ...
  double factor = 1;                // the change that was made, over the one that should have been
  bool changed = false;             // some element did
  std::uint64_t should_change = 0;  // elements that the step moves by more than they can round away
  std::vector<std::string> skipped;  // states whose value before the step is not known
};

// What the optimizers of a rank were told, by parameter.
struct ToldUpdate {
  const UpdateGroup* group = nullptr;
  std::int64_t steps = -1;  // taken before
};
[[nodiscard]] std::map<std::string, ToldUpdate> told_updates(const RankInfo& rank,
                                                             std::int64_t iteration);

[[nodiscard]] StepReplay replay_step(const Evidence& evidence, std::int32_t rank,
                                     std::int64_t iteration, const std::string& parameter,
                                     const ToldUpdate& told, const GradientSums& sums);

}  // namespace ttrace::builtin
