// SPDX-License-Identifier: Apache-2.0
// ttrace-inspect --collectives: the calls that ranks made, as JSON and as a table of that JSON.
#pragma once

#include "libttrace/trace.hpp"
#include "tools/inspect_list.hpp"

namespace ttrace {

// In the order of iterations and ranks, of each in the order of its calls. The filter's phase must
// be empty. Throws Trouble when no call passes.
void print_collectives(const Trace& trace, const InspectFilter& filter, bool as_json);

}  // namespace ttrace
