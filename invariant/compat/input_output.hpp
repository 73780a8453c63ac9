// SPDX-License-Identifier: Apache-2.0
// See input_output.cpp.
#pragma once

#include <string>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

void infer_input_output(Context& context, const Sink& sink);
void collect_input_output(Context& context, Hypothesis& hypothesis);
void check_input_output(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string input_output_text(const Values& values, const std::vector<Param>& params);

}  // namespace ttrace::invariant::compat
