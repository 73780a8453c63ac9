// SPDX-License-Identifier: Apache-2.0
// The layout that a program wrote beside a shard.
#pragma once

#include "libttrace/logical.hpp"

namespace ttrace {

// Of a shard that has one. Throws Trouble, which names the tensor, when the text is no layout.
[[nodiscard]] Layout layout_beside(const Shard& shard);

}  // namespace ttrace
