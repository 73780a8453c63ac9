// SPDX-License-Identifier: Apache-2.0
// Parameters after the step. Adam's first update is lr * g / (|g| + eps): where the gradient is
// rounding its sign is, too, and a healthy update is off by 2 lr. So elements whose gradient lies
// within a few times its own limit say nothing and are left out, and counted. Of the others, an
// element whose gradient g may be off by dg has an update u that may be off by |u| dg / |g|: that
// bounds every optimizer whose update grows no faster than the gradient (SGD: equal; Adam: less).
#pragma once

#include <cstdint>
#include <optional>

#include "libttrace/core/dtype.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

struct UpdateSums {
  double error_squares = 0;      // (c - r)^2 over the elements that are kept
  double update_squares = 0;     // (r - before)^2
  double allowed_squares = 0;    // ((r - before) * dg / g)^2
  double reference_squares = 0;  // r^2
  std::uint64_t kept = 0;
  std::uint64_t excluded = 0;
};

// The arithmetic; `before` is the reference's value before the step, `gradient` its gradient.
struct AccumulateUpdate {
  double threshold = 0;       // |gradient| must exceed it
  double gradient_error = 0;  // dg: what rounding may do to one element of the gradient

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
    const double allowed = size > 0 ? update * (gradient_error / size) : 0;
    sums.update_squares += update * update;
    sums.allowed_squares += allowed * allowed;
    sums.reference_squares += reference * reference;
  }
};

struct UpdateTensors {
  const LogicalTensor* reference = nullptr;  // after the step
  const LogicalTensor* candidate = nullptr;
  const LogicalTensor* before = nullptr;    // the reference's, before the step
  const LogicalTensor* gradient = nullptr;  // the reference's
};

// nullopt when one of the four cannot be read or has another shape.
[[nodiscard]] std::optional<UpdateSums> measure_update(const UpdateTensors& tensors,
                                                       const AccumulateUpdate& accumulate);

}  // namespace ttrace
