// SPDX-License-Identifier: Apache-2.0
// See threshold.cpp.
#pragma once

#include <string>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

void infer_threshold(Context& context, const Sink& sink);
void collect_threshold(Context& context, Hypothesis& hypothesis);
void check_threshold(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string threshold_text(const Values& values, const std::vector<Param>& params);

}  // namespace ttrace::invariant::compat
