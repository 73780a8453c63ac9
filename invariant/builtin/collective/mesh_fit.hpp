// SPDX-License-Identifier: Apache-2.0
// How a group lies in the mesh that the program declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

enum class Fit : std::uint8_t {
  unknown,  // no mesh, or the ranks of some members are not known
  whole,    // all ranks along one or several axes
  part,     // some of those along these axes
  none,     // ranks that stand apart in a way no axes describe
};

struct MeshFit {
  Fit fit = Fit::unknown;
  std::vector<std::string> axes;  // along which members stand apart
  bool ordered = true;            // members are numbered as ranks lie along these axes
  std::string why;                // unknown: what is missing
};
[[nodiscard]] MeshFit fit_of(const Evidence& evidence, const Group& group);

struct NearestGroup {
  std::vector<std::string> axes;
  std::vector<std::int32_t> ranks;
};
// The ranks along one or several axes that have most in common with the group's.
[[nodiscard]] NearestGroup nearest_to(const Evidence& evidence, const Group& group);

// "tp", "dp and cp".
[[nodiscard]] std::string axes_text(const std::vector<std::string>& axes);

}  // namespace ttrace::builtin
