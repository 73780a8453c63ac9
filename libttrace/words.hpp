// SPDX-License-Identifier: Apache-2.0
// Numbers as a reader wants them.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace {

// 5200 -> "5,200"
[[nodiscard]] std::string grouped(std::uint64_t value);
// "1 tensor", "5,200 tensors"
[[nodiscard]] std::string plural(std::uint64_t count, const std::string& noun,
                                 const std::string& ending = "s");

}  // namespace ttrace
