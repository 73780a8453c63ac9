// SPDX-License-Identifier: Apache-2.0
// See groups.hpp.
#include "capture/nccl/groups.hpp"

#include <vector>

#include "capture/nccl/communicators.hpp"
#include "capture/nccl/functions.hpp"
#include "capture/nccl/library.hpp"
#include "capture/nccl/record.hpp"

namespace ttrace::nccl {
namespace {

// Preloaded at start, so the initial-exec model is safe and never allocates.
__attribute__((tls_model("initial-exec"))) thread_local int nesting = 0;

struct Group {
  int depth = 0;
  std::vector<Pending> calls;
  std::vector<std::pair<ncclComm_t*, std::shared_ptr<Communicator>>> made;
};

Group& group() {
  static thread_local Group own;
  return own;
}

bool started(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

bool in_progress(ncclComm_t comm, bool& failed) {
  const auto ask = TTRACE_REAL(ncclCommGetAsyncError);
  ncclResult_t state = ncclInProgress;
  if (ask != nullptr) ask(comm, &state);
  failed = state != ncclSuccess;
  return state == ncclInProgress;
}

// A call whose group has ended with `result`.
void end_call(Pending&& pending, ncclResult_t result) {
  if (result != ncclInProgress) {
    complete(pending, result != ncclSuccess);
    return;
  }
  const ncclComm_t comm = pending.call.comm;
  const std::shared_ptr<Communicator> communicator = pending.communicator;
  bool failed = false;
  if (!in_progress(comm, failed) && !communicator->has_waiting) {
    complete(pending, failed);
    return;
  }
  {
    const std::lock_guard lock(communicator->mutex);
    pending.flags |= TTRACE_ASYNCHRONOUS;
    communicator->waiting.push_back(std::move(pending));
    communicator->has_waiting = true;
  }
  // Another thread may have heard of its end before it was there to be completed.
  if (!in_progress(comm, failed)) complete_waiting(*communicator, failed);
}

}  // namespace

bool nested() { return nesting != 0; }
Nested::Nested() { ++nesting; }
Nested::~Nested() { --nesting; }

bool watched() { return nesting == 0 && wanted(); }

void group_started(ncclResult_t result) {
  if (result == ncclSuccess) ++group().depth;
}

void group_ending() {
  if (group().depth != 1) return;
  for (const Pending& pending : group().calls) announce(pending);
}

void group_ended(ncclResult_t result, bool simulated) {
  if (group().depth == 0 || --group().depth > 0) return;
  Group ended;
  std::swap(ended, group());
  if (simulated) return;
  for (auto& [where, communicator] : ended.made) {
    if (started(result) && *where != nullptr) enter(*where, std::move(communicator));
  }
  for (Pending& pending : ended.calls) end_call(std::move(pending), result);
}

void starting(const Pending& pending) {
  if (pending.communicator != nullptr && group().depth == 0) announce(pending);
}

void settle(Pending&& pending, ncclResult_t result) {
  if (pending.communicator == nullptr || pending.iteration < 0) return;
  if (!started(result)) {
    complete(pending, true);
  } else if (group().depth > 0) {
    pending.flags |= TTRACE_IN_GROUP;
    group().calls.push_back(std::move(pending));
  } else {
    end_call(std::move(pending), result);
  }
}

void made(ncclComm_t* where, std::shared_ptr<Communicator> communicator, ncclResult_t result) {
  if (!started(result) || where == nullptr) return;
  if (group().depth > 0) {
    group().made.emplace_back(where, std::move(communicator));
  } else if (*where != nullptr) {
    enter(*where, std::move(communicator));
  }
}

void state_known(ncclComm_t comm, ncclResult_t state) {
  if (state == ncclInProgress) return;
  const std::shared_ptr<Communicator> communicator = find(comm);
  if (communicator != nullptr) complete_waiting(*communicator, state != ncclSuccess);
}

void complete_waiting(Communicator& communicator, bool failed) {
  if (!communicator.has_waiting) return;
  std::vector<Pending> ready;
  {
    const std::lock_guard lock(communicator.mutex);
    ready.swap(communicator.waiting);
    communicator.has_waiting = false;
  }
  for (const Pending& pending : ready) complete(pending, failed);
}

}  // namespace ttrace::nccl
