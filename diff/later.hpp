// SPDX-License-Identifier: Apache-2.0
// Iterations after the first are not judged, because rounding grows through the optimizer by how
// much no limit knows. They are looked at: how large errors have become, and whether one of them is
// no drift.
#pragma once

#include "diff/compare.hpp"
#include "diff/prepared.hpp"

namespace ttrace {

// prepare(), which finds layouts from samples, and then reads on in order.
void prepare_sampling(Prepared& prepared, const Trace& reference, const Trace& candidate,
                      std::int64_t iteration, const CompareOptions& options);

[[nodiscard]] LaterIteration look_at(const Trace& reference, const Trace& candidate,
                                     const Backend& backend, std::int64_t iteration,
                                     const CompareOptions& options);

}  // namespace ttrace
