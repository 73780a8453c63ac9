// SPDX-License-Identifier: Apache-2.0
// ttrace-check -i FILE without --traincheck-compat: a trace of events against invariants, once or
// while it is being written.
#pragma once

#include "tools/check_invariants.hpp"

namespace ttrace {

// An exit code: kSame when none is violated, kDiffer when one is, kTrouble when none applied.
[[nodiscard]] int check_learned(const CheckInvariantsOptions& options);

}  // namespace ttrace
