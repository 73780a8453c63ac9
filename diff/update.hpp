// SPDX-License-Identifier: Apache-2.0
// Parameters after the step. Adam's first update is lr * g / (|g| + eps): where the gradient is
// rounding its sign is, too, and a healthy update is off by 2 lr. So elements whose gradient lies
// within a few times its own limit say little: they are left out of the sums and counted, and must
// only have moved no further than elements of that tensor do. Where both gradients are exactly 0
// (rows of an embedding that no token looked up) the two updates are the same computation. Of the
// others, an
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
  double largest_update = 0;     // |r - before| over all elements
  double largest_excluded = 0;   // |c - before| over the elements left out, less its rounding
  std::uint64_t kept = 0;
  std::uint64_t excluded = 0;
  std::uint64_t without_gradient = 0;  // differ, although both gradients are exactly 0
};

// The arithmetic; `before` is the reference's value before the step, `gradient` its gradient.
struct AccumulateUpdate {
  double threshold = 0;       // |gradient| must exceed it
  double own_epsilon = 0;     // of the parameter's type
  double before_epsilon = 0;  // of the type of `before`: masters begin as rounded parameters
  double gradient_error = 0;  // dg: what rounding may do to one element of the gradient

  TTRACE_HD static double size_of(double value) { return value < 0 ? -value : value; }

  TTRACE_HD void operator()(UpdateSums& sums, double reference, double candidate, double before,
                            double gradient, double candidate_gradient) const {
    const double size = size_of(gradient);
    const double error = candidate - reference;
    const double update = reference - before;
    if (size_of(update) > sums.largest_update) sums.largest_update = size_of(update);
    if (!(size > threshold)) {
      ++sums.excluded;
      if (gradient == 0 && candidate_gradient == 0) {
        // Two roundings: implementations of one update may differ in the last bit.
        if (!(size_of(error) <= 2 * own_epsilon * size_of(reference))) ++sums.without_gradient;
        return;
      }
      const double moved = size_of(candidate - before) - before_epsilon * size_of(before);
      if (!(moved <= sums.largest_excluded)) sums.largest_excluded = moved;
      return;
    }
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
  const LogicalTensor* candidate_gradient = nullptr;
};

struct StepError {
  double units = 0;  // the largest error of an element, in units of |before| + |after|
  std::uint64_t index = 0;
};

// `unit` is the relative distance of neighbouring values. `before` may be missing; nullopt when
// the tensors cannot be read or have not the same shape.
[[nodiscard]] std::optional<StepError> measure_step(const LogicalTensor& reference,
                                                    const LogicalTensor& candidate,
                                                    const LogicalTensor* before, double unit);

// nullopt when one of the five cannot be read or has another shape.
[[nodiscard]] std::optional<UpdateSums> measure_update(const UpdateTensors& tensors,
                                                       const AccumulateUpdate& accumulate);

}  // namespace ttrace
