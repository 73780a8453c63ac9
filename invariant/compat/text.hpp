// SPDX-License-Identifier: Apache-2.0
// Names and values as TrainCheck's descriptions of invariants show them.
#pragma once

#include <string>

#include "invariant/invariant.hpp"

namespace ttrace::invariant::compat {

// "Linear.forward" of "torch.nn.modules.linear.Linear.forward", "sgd.sgd" of "torch.optim.sgd.sgd".
[[nodiscard]] std::string short_name(const Values& values, Name function);
// "Parameter.data"; without the prefix that marks addresses.
[[nodiscard]] std::string variable_text(const Values& values, const Param& param);
// As Python's str has it; lists as tuples.
[[nodiscard]] std::string python_text(const Values& values, Value value);
// The same, with words for many values spoken: "non-zero".
[[nodiscard]] std::string spoken(const Values& values, Value value);
// "input[0].shape.1", or the argument's name.
[[nodiscard]] std::string place_text(const Values& values, const Param& param);

}  // namespace ttrace::invariant::compat
