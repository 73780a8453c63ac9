// SPDX-License-Identifier: Apache-2.0
// Looks once at what the NCCL of the process exports: functions that this recorder does not know
// may move data past it, and rank.json says so.
#pragma once
#include "capture/nccl/library.hpp"

namespace ttrace::nccl {

void audit(const Library& library);

}  // namespace ttrace::nccl
