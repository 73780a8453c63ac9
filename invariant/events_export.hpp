// SPDX-License-Identifier: Apache-2.0
// Events in the shape of TrainCheck's files.
#pragma once

#include "invariant/record.hpp"

namespace ttrace::invariant {

// Files become those that TrainCheck has, one of calls and one of states for each thread, and the
// records of each stay in the order of time. Calls that changed variables name them in
// "proxy_obj_names", as TrainCheck's calls do that are given variables: it stops without the
// column.
void arrange_as_traincheck(Records& records);

}  // namespace ttrace::invariant
