// SPDX-License-Identifier: Apache-2.0
// Total orders of invariants and their parts that do not depend on the order of reading.
#pragma once

#include "invariant/invariant.hpp"

namespace ttrace::invariant {

[[nodiscard]] int compare(const Values& values, const Param& a, const Param& b);
[[nodiscard]] int compare(const Values& values, const Condition& a, const Condition& b);
// By relation, text, parameters, precondition.
[[nodiscard]] int compare(const Values& values, const Invariant& a, const Invariant& b);

// Clauses, conjunctions and values in order.
void sort_condition(const Values& values, Condition& condition);

}  // namespace ttrace::invariant
