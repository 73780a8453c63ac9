// SPDX-License-Identifier: Apache-2.0
// Measures all pairs, on as many threads as memory allows. They share pairs in stretches that do
// not depend on how many threads there are; nor do results.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "diff/align.hpp"
#include "diff/seed.hpp"
#include "diff/stream.hpp"

namespace ttrace {

struct MeasuringOptions {
  bool trust_hash = true;  // both as in MeasureOptions
  bool read_once = false;
  // Called with elements done and in all; from one thread at a time.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

// One result a pair, by index; aliases get that of the tensor they are.
[[nodiscard]] std::vector<PairMetrics> measure_all(const Alignment& alignment, const Seeds& seeds,
                                                   const Backend& backend,
                                                   const MeasuringOptions& options);

}  // namespace ttrace
