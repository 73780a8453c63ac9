// SPDX-License-Identifier: Apache-2.0
// What ttrace-capture says at the end, on stderr: how much was captured, what is missing and why,
// and what to try when it was nothing at all.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/capture_options.hpp"
#include "tools/capture_trace.hpp"

namespace ttrace {

[[nodiscard]] bool nothing_captured(const CaptureOptions& options,
                                    const std::vector<RankSummary>& ranks);
void print_outcome(const CaptureOptions& options, int exit_code,
                   const std::vector<RankSummary>& ranks);

}  // namespace ttrace
