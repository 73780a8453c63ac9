// SPDX-License-Identifier: Apache-2.0
// TrainCheck reads a trace into one table, whose columns have a type each: a column of integers
// with a hole becomes one of floats, and 64-bit hashes keep 53 bits.
#pragma once

#include "invariant/record.hpp"

namespace ttrace::invariant::compat {

// Gives the records' fields the values and the order of that table. NaN counts as missing there.
void apply_columns(Records& records);

}  // namespace ttrace::invariant::compat
