// SPDX-License-Identifier: Apache-2.0
// See distinct.cpp.
#pragma once

#include <string>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

void infer_distinct(Context& context, const Sink& sink);
void collect_distinct(Context& context, Hypothesis& hypothesis);
void check_distinct(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string distinct_text(const Values& values, const std::vector<Param>& params);

}  // namespace ttrace::invariant::compat
