// SPDX-License-Identifier: Apache-2.0
// Sums of gradients over the ranks, and the step: SGD with momentum. With `sharded` each dp rank
// keeps the momentum of its part of every parameter, steps that part, and gathers the others.
#pragma once

#include <vector>

#include "samples/cpp/bug.hpp"
#include "samples/cpp/layers.hpp"
#include "samples/cpp/parallel.hpp"

class Optimizer {
 public:
  // `samples` of an iteration, of all ranks.
  Optimizer(std::vector<Parameter*> parameters, const Mesh& mesh, int samples, bool sharded,
            Bug bug);
  // Each parameter's sums over its micro-batches become its part of the means over all samples.
  void reduce_gradients();
  // Of this rank's share: the shares of all ranks add up to the square of the gradient's norm.
  [[nodiscard]] float squared_norm() const;
  void step();

 private:
  void reduce(Parameter& parameter, bool over_dp) const;

  std::vector<Parameter*> parameters_;
  Group dp_;
  Group tp_;
  int samples_;
  bool sharded_;
  Bug bug_;
};
