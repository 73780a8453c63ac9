// SPDX-License-Identifier: Apache-2.0
// Letting mapped pages go, a few MiB at a time. Each time the kernel stops all threads of the
// process for a moment, so neighbours that are let go one after another go together.
#pragma once

#include <cstddef>

namespace ttrace {

// The pages of [begin, end), which lies in the mapping that begins at `mapping`, go now or soon;
// few MiB of the process are kept waiting.
void release_pages(const std::byte* mapping, const std::byte* begin, const std::byte* end);
// Before the mapping goes away.
void forget_pages(const std::byte* mapping);

}  // namespace ttrace
