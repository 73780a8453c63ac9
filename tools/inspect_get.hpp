// SPDX-License-Identifier: Apache-2.0
// One tensor of a trace as a NumPy file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// The shards of one key, in the trace's own numbering of micro-batches. Throws Trouble when there
// are none, with what might have been meant.
[[nodiscard]] std::vector<Shard> shards_of(const Trace& trace, const Key& key);

// The whole tensor, or with `rank` that rank's shard.
void get_tensor(const Trace& trace, const Key& key, std::optional<std::int32_t> rank,
                const std::vector<LayoutRule>& rules, const std::filesystem::path& output);

}  // namespace ttrace
