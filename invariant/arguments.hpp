// SPDX-License-Identifier: Apache-2.0
// Arguments and results of calls as records hold them: a typed value is an object of one member,
// the type's name and the payload.
#pragma once

#include <string_view>
#include <vector>

#include "invariant/events.hpp"
#include "invariant/world.hpp"

namespace ttrace::invariant {

struct Typed {
  Name type = 0;
  Value payload;  // absent when `value` is no typed value
};
[[nodiscard]] Typed typed(const Values& values, Value value);

// Parameter -> typed value. Positions of functions without known parameters stay "0", "1".
[[nodiscard]] Value bound_arguments(World& world, Name function, Value args, Value kwargs);
// Of a context manager: parameter -> payload, with defaults.
[[nodiscard]] Value manager_arguments(World& world, Name init, Value args, Value kwargs);
// Of a function that an invariant names: parameter -> typed value. Files have them within an
// object that repeats the function's name.
[[nodiscard]] Value stated_arguments(const Values& values, const Param& child);
[[nodiscard]] Value state_arguments(World& world, Name function, Value arguments);
// Parameter -> typed value, with defaults.
[[nodiscard]] Value arguments_with_defaults(World& world, Name function, Value args, Value kwargs);

[[nodiscard]] bool is_tensor_type(std::string_view type);
// Attributes of the tensors among a call's arguments, positional ones first, or results.
[[nodiscard]] std::vector<Value> input_tensors(const Values& values, const Call& call);
[[nodiscard]] std::vector<Value> output_tensors(const Values& values, const Call& call);

// Whether a value looks configured rather than computed, so that another run can have it, too:
// flags, none, small or round integers, short words that are no path, numbers of few digits.
[[nodiscard]] bool looks_configured(const Values& values, Value value);
// Of those, what has few alternatives: flags, none, words. A number that only one of several runs
// had, such as a batch size, is that run's own; a word such as a dtype is not.
[[nodiscard]] bool is_enum_like(const Values& values, Value value);

}  // namespace ttrace::invariant
