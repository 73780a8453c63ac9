// SPDX-License-Identifier: Apache-2.0
// Copies that should be bit-equal, and who deviates.
#pragma once

#include <optional>
#include <string>

#include "invariant/builtin/copies.hpp"

namespace ttrace::builtin {

struct Conflict {
  std::vector<std::int32_t> odd;  // the minority; all, where there is no majority
  std::string who;                // "rank 3 differs from ranks 0-2"
  std::optional<double> error;    // relative, between the largest two opinions
};

// nullopt: all are equal.
[[nodiscard]] std::optional<Conflict> conflict_in(const CopySet& set);

}  // namespace ttrace::builtin
