// SPDX-License-Identifier: Apache-2.0
// Measures all pairs, on as many threads as memory allows. A pair is one thread's, so results do
// not depend on how many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "diff/align.hpp"
#include "diff/seed.hpp"
#include "diff/stream.hpp"

namespace ttrace {

// One result a pair, by index; aliases get that of the tensor they are.
[[nodiscard]] std::vector<PairMetrics> measure_all(
    const Alignment& alignment, const Seeds& seeds, const Backend& backend,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace ttrace
