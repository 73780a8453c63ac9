// SPDX-License-Identifier: Apache-2.0
// Ranks that should hold copies and do not, because each holds an addend: what every rank computes
// from its own part of the data (the gradient of something all ranks share), before anybody adds it
// up. Seen so, the shards are a sum over the mesh axes along which they differ.
#pragma once

#include <optional>

#include "libttrace/logical.hpp"

namespace ttrace {

[[nodiscard]] bool has_problem(const LogicalTensor& tensor, FindingKind kind);

// The same shards as addends over the fewest axes that explain why copies differ. nullopt when the
// copies do not conflict, when something else is wrong, when no axes explain it, or when an addend
// is not there.
[[nodiscard]] std::optional<LogicalTensor> as_sum(const LogicalTensor& tensor);

// "dp", "dp, cp"
[[nodiscard]] std::string axes_text(const LogicalTensor& sum);

}  // namespace ttrace
