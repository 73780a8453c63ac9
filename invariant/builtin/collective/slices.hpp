// SPDX-License-Identifier: Apache-2.0
// Which elements of a buffer belong to which member.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {

// The parts of `buffer` for each of `members`, one after another. `splits`: "3,5", or "" for equal
// ones. nullopt: they do not add up to the buffer.
[[nodiscard]] std::optional<std::vector<Part>> slices_of(const Part& buffer,
                                                         const std::string& splits,
                                                         std::size_t members);

}  // namespace ttrace::builtin
