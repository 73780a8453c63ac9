// SPDX-License-Identifier: Apache-2.0
// Stages of a run: init, training, testing. What was never seen in a stage is not said to hold
// there.
#pragma once

#include <span>
#include <vector>

#include "invariant/world.hpp"

namespace ttrace::invariant {

class Stages {
 public:
  Stages() = default;
  explicit Stages(World& world);  // those of all situations so far

  // Adds to `condition`, which covers `positive`, that the stage is one of theirs.
  void restrict(World& world, Condition& condition, std::span<const CountedExample> positive) const;

 private:
  Name column_ = 0;
  std::vector<Value> all_;
};

}  // namespace ttrace::invariant
