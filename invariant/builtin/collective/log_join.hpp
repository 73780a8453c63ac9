// SPDX-License-Identifier: Apache-2.0
// Which calls of a group's members belong together.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

struct Joined {
  std::vector<Joint> joints;
  std::map<std::int64_t, std::uint64_t> unpaired;  // sends and receives without the other side
};

[[nodiscard]] Joined join(const Group& group, std::vector<Call> calls);

}  // namespace ttrace::builtin
