// SPDX-License-Identifier: Apache-2.0
// --init-from TRACE: the parameters of a trace as a pack, which the traced processes map and cut to
// their own layout before the first forward pass.
#pragma once

#include <filesystem>

namespace ttrace {

// Whole tensors of param/value in the trace's first iteration, by parameter name. `layout_file` may
// say how undeclared shards are cut. Throws Trouble: a tensor that cannot be put together.
void write_init_pack(const std::filesystem::path& trace, const std::filesystem::path& layout_file,
                     const std::filesystem::path& pack, bool quiet);

}  // namespace ttrace
