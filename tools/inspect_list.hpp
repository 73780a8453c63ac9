// SPDX-License-Identifier: Apache-2.0
// What a trace holds, as JSON and as text made from that JSON, so that both say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libttrace/logical.hpp"

namespace ttrace {

struct InspectFilter {
  std::optional<std::int32_t> rank;
  std::optional<std::int64_t> iteration;
  std::string phase;
  std::string module;
  [[nodiscard]] bool empty() const {
    return !rank && !iteration && phase.empty() && module.empty();
  }
};

// Ranks, mesh, iterations and totals by phase; with `list` every tensor that passes the filter.
void print_contents(const Trace& trace, const InspectFilter& filter, bool list, bool as_json);

// One tensor, as each rank has it.
void print_tensor(const Trace& trace, const Key& key, std::optional<std::int32_t> rank,
                  bool as_json);

}  // namespace ttrace
