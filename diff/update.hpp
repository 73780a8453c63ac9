// SPDX-License-Identifier: Apache-2.0
// Parameters after the step. Adam's first update is lr * sign(g): where the gradient is rounding its
// sign is, too, and a healthy update is off by 2 lr. So elements whose gradient lies within a few
// times its own limit say nothing and are left out, and counted.
#pragma once

#include <cstdint>
#include <optional>

#include "libttrace/core/dtype.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

struct UpdateSums {
  double error_squares = 0;      // (c - r)^2 over the elements that are kept
  double update_squares = 0;     // (r - before)^2
  double reference_squares = 0;  // r^2
  std::uint64_t kept = 0;
  std::uint64_t excluded = 0;
};

// The arithmetic; `before` is the reference's value before the step, `gradient` its gradient.
struct AccumulateUpdate {
  double threshold = 0;  // |gradient| must exceed it

  TTRACE_HD void operator()(UpdateSums& sums, double reference, double candidate, double before,
                            double gradient) const {
    const double size = gradient < 0 ? -gradient : gradient;
    if (!(size > threshold)) {
      ++sums.excluded;
      return;
    }
    const double error = candidate - reference;
    const double update = reference - before;
    ++sums.kept;
    sums.error_squares += error * error;
    sums.update_squares += update * update;
    sums.reference_squares += reference * reference;
  }
};

struct UpdateTensors {
  const LogicalTensor* reference = nullptr;  // after the step
  const LogicalTensor* candidate = nullptr;
  const LogicalTensor* before = nullptr;     // the reference's, before the step
  const LogicalTensor* gradient = nullptr;   // the reference's
};

// nullopt when one of the four cannot be read or has another shape.
[[nodiscard]] std::optional<UpdateSums> measure_update(const UpdateTensors& tensors,
                                                       double threshold);

}  // namespace ttrace
