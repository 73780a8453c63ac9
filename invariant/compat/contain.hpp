// SPDX-License-Identifier: Apache-2.0
// "A call of this function calls that one", "... changes that attribute of variables": what
// inference and check share.
#pragma once

#include <string>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

void infer_contain(Context& context, const Sink& sink);
void collect_contain(Context& context, Hypothesis& hypothesis);
void check_contain(Context& context, const Invariant& invariant, Outcome& outcome);
[[nodiscard]] std::string contain_text(const Values& values, const std::vector<Param>& params);

// Whether a call within `call` is what `child` asks for; exceptions never are.
[[nodiscard]] bool contains(View& view, const Call& call, const Param& child);

// Words that stand for many values of a variable: "above_zero". Joins many changes of one attribute
// to one where that says more; nullopt when the values have no common word.
[[nodiscard]] std::optional<Value> generalise(Values& values, const std::vector<Value>& of);

}  // namespace ttrace::invariant::compat
