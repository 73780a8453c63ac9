// SPDX-License-Identifier: Apache-2.0
// All checks. A new one is a file, a line in checks.hpp and one here.
#include <array>

#include "invariant/builtin/checks.hpp"

namespace ttrace::builtin {

std::string_view name_of(Certainty certainty) {
  switch (certainty) {
    case Certainty::certain:
      return "certain";
    case Certainty::likely:
      return "likely";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

std::span<const CheckEntry> all_checks() {
  static constexpr std::array<CheckEntry, 20> kChecks{{
      {"data", "data parallel ranks get different samples, tensor parallel ranks the same",
       make_data},
      {"order", "all members of a group call the same collectives in the same order", make_order},
      {"ended", "collectives that have begun end, because all members come to them", make_ended},
      {"groups", "groups are ranks along axes of the mesh, in its order", make_groups},
      {"conserve", "what comes out of a collective is what went in", make_conserve},
      {"parts", "what is summed are addends of a tensor, not parts of it", make_parts},
      {"twice", "a sum over ranks is not summed over them again", make_twice},
      {"fresh", "what goes into a collective is new each time", make_fresh},
      {"waited", "what is computed from a collective's output has the present one", make_waited},
      {"skipped", "layers and micro-batches of one kind make the same collectives", make_skipped},
      {"unreduced", "gradients of all parameters are summed over data parallel ranks, or of none",
       make_unreduced},
      {"mixed", "a group averages all gradients, or sums all of them", make_mixed},
      {"nonfinite", "no NaN or infinity, else where it comes from", make_nonfinite},
      {"random", "random numbers are equal or different as the mesh demands", make_random},
      {"zeroed", "gradients begin each iteration at zero", make_zeroed},
      {"tied", "tied weights and their gradients are equal", make_tied},
      {"replicas", "what several ranks hold is bit-equal on them", make_replicas},
      {"norm", "the gradient norm is that of all gradients, clipping the same on all ranks",
       make_global_norm},
      {"update", "the optimizer's rule gives the states and parameters after the step",
       make_update},
      {"changed", "parameters change if and only if they are trainable", make_changed},
  }};
  return kChecks;
}

}  // namespace ttrace::builtin
