// SPDX-License-Identifier: Apache-2.0
// Who is not in a group, although it sums what they hold, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "invariant/builtin/collective/gradient_flow.hpp"
#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

struct LeftOut {
  std::string parameter;  // whose gradient is summed
  std::vector<std::int32_t> ranks;
};

// A sum makes the gradient of a parameter. Of `others`, who are no members, those that began with
// the same parameter, bit for bit, and have a gradient of it that no sum went into.
[[nodiscard]] std::optional<LeftOut> left_out_of(const Evidence& evidence, GradientFlow& flow,
                                                 const Joint& joint,
                                                 const std::vector<std::int32_t>& others);

// None of `others` holds the parameters that a member holds, as another stage of a pipeline does
// not. nullopt: parameters are not known.
[[nodiscard]] std::optional<bool> hold_other_parameters(const Evidence& evidence,
                                                        const std::vector<std::int32_t>& members,
                                                        const std::vector<std::int32_t>& others);

}  // namespace ttrace::builtin
