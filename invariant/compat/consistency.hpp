// SPDX-License-Identifier: Apache-2.0
// See consistency.cpp.
#pragma once

#include <string>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

void infer_consistency(Context& context, const Sink& sink);
void collect_consistency(Context& context, Hypothesis& hypothesis);
void check_consistency(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string consistency_text(const Values& values, const std::vector<Param>& params);

}  // namespace ttrace::invariant::compat
