// SPDX-License-Identifier: Apache-2.0
// libttrace_capture.so as found in the process: the one that the program or the agent uses; for a
// program that uses none, it is loaded, and all that is recorded is iteration 0.
#pragma once
#include <cstdint>

#include "capture/ttrace.h"

namespace ttrace::nccl {

struct Library {
  decltype(&ttrace_iteration) iteration = nullptr;
  decltype(&ttrace_microbatch) microbatch = nullptr;
  decltype(&ttrace_collectives_wanted) wanted = nullptr;
  decltype(&ttrace_scope) scope = nullptr;
  decltype(&ttrace_record) record = nullptr;
  decltype(&ttrace_record_collective) record_collective = nullptr;
  decltype(&ttrace_note) note = nullptr;
};

// Whether ttrace-capture --comm was given, and this is no forked child.
bool wanted();

// nullptr while there is nothing to record to. Cheap.
const Library* library();

}  // namespace ttrace::nccl
