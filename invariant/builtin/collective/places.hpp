// SPDX-License-Identifier: Apache-2.0
// Places of a program that make collectives again and again: in each micro-batch and iteration, and
// in each of many layers.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

struct CallPlace {
  std::int32_t rank = -1;
  std::string module, function, group;
  std::uint32_t number = 0;  // n-th such call in the micro-batch
  friend auto operator<=>(const CallPlace&, const CallPlace&) = default;
};

struct PlacedCall {
  CallPlace place;
  Call call;
};
// All calls of a rank in an iteration, in its order. Calls that failed are left out.
[[nodiscard]] std::vector<PlacedCall> placed_calls(const CollectiveLog& log, std::int32_t rank,
                                                   std::int64_t iteration);

// Whether equal contents say that it is the same tensor: no constant, and enough numbers.
[[nodiscard]] bool tells(const Record* record);

// "layers.#.fc1" of "layers.3.fc1": equal in all layers.
[[nodiscard]] std::string pattern_of(const std::string& module);
// {3} of it.
[[nodiscard]] std::vector<std::uint64_t> numbers_in(const std::string& module);

}  // namespace ttrace::builtin
