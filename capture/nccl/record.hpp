// SPDX-License-Identifier: Apache-2.0
// What is recorded of a call: what goes in before it, what came out and the call itself after it.
#pragma once
#include <nccl.h>

#include "capture/nccl/call.hpp"
#include "capture/nccl/communicators.hpp"

namespace ttrace::nccl {

// Before the call; also counts it.
Pending begin(const Call& call);

// Just before NCCL is to run it: a hang or a death in it is then in the trace.
void announce(const Pending& pending);

// After NCCL has enqueued it, or has failed: the output is copied on the call's stream, behind it.
void complete(const Pending& pending, bool failed);

// Says in rank.json that calls of `function` are not seen, once a function.
void note_unseen(const char* function, const char* why);

}  // namespace ttrace::nccl
