// SPDX-License-Identifier: Apache-2.0
// The calls of this thread between ncclGroupStart and ncclGroupEnd: what they leave behind exists
// only after the outermost end, and for communicators that do not block, later still.
#pragma once
#include <nccl.h>

#include <cerrno>
#include <utility>

#include "capture/nccl/call.hpp"

namespace ttrace::nccl {

// NCCL calls itself through the PLT (ncclBcast calls ncclBroadcast), which comes here, too: only
// the outermost is the program's.
bool nested();
class Nested {
 public:
  Nested();
  ~Nested();
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

// Whether a call is to be looked at: it is the program's, and --comm was given.
bool watched();

void group_started(ncclResult_t result);
// Before ncclGroupEnd: its calls are to run now.
void group_ending();
// Of ncclGroupEnd; `simulated`: of ncclGroupSimulateEnd, which starts nothing.
void group_ended(ncclResult_t result, bool simulated);

// Before a data call, which in a group only runs at its end.
void starting(const Pending& pending);
// After a data call has returned.
void settle(Pending&& pending, ncclResult_t result);

// A communicator that NCCL makes: it can be entered when the call, or its group, has ended.
void made(ncclComm_t* where, std::shared_ptr<Communicator> communicator, ncclResult_t result);

// The state of a communicator that does not block, as the program has just learnt it.
void state_known(ncclComm_t comm, ncclResult_t state);
// What NCCL had not enqueued at the program's latest question.
void complete_waiting(Communicator& communicator, bool failed);

// Runs the recorder's work: whatever happens in it, the program sees nothing of it.
template <class Work>
void quietly(Work&& work) noexcept {
  const int saved = errno;
  try {
    const Nested guard;
    std::forward<Work>(work)();
  } catch (...) {
    // Out of memory: the call is missing from the trace, and its sequence number tells.
  }
  errno = saved;
}

}  // namespace ttrace::nccl
