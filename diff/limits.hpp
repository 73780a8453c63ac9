// SPDX-License-Identifier: Apache-2.0
// How large an error each tensor may have: plain numbers. Where they come from (formulas, measured
// noise) is not this folder's business; what is done with them is judge.hpp's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

enum class Rule : std::uint8_t {
  equal,     // every element has the reference's value
  relative,  // norm of the error <= relative * norm of the reference, floors added in quadrature
  update,    // a parameter after the step: relative * norm of its update + own_epsilon * its norm
  step,      // the same, of a step from equal gradients and states: kStepUlps units of any element
};

struct TensorLimit {
  Rule rule = Rule::relative;
  double relative = 0;
  double epsilon = 0;      // of the arithmetic that made the tensor: what the floors count in
  double own_epsilon = 0;  // of the type in which it is stored
};

inline constexpr double kStepUlps = 8;

// One rounding of a term, as an RMS in epsilons: half a unit, uniform, over the mantissas of random
// values.
inline constexpr double kTermRounding = 0.22;

struct Limits {
  std::string mode = "bound";
  bool weak = true;  // said beside the verdict: a small bug may lie below these limits
  bool floors = true;
  // The reference was fed the candidate's own tensors: each difference is introduced where it is,
  // and no rounding has grown through the optimizer.
  bool local = false;
  // Floor of a parameter's gradient, in epsilon * sqrt(sum over tokens of |dy|^2 |x|^2).
  double parameter_floor = 0;
  // Floor of an activation's gradient, in epsilon * RMS of the largest sibling * sqrt(elements).
  double sibling_floor = 0;
  // Elements whose gradient is below this many times its limit (as RMS) say nothing about an
  // update.
  double update_mask = 0;
  // How far the gradient seed may be from a ratio of mesh sizes.
  double seed_tolerance = 1e-5;
  std::vector<TensorLimit> tensors;  // of Alignment::pairs, by index
};

}  // namespace ttrace
