// SPDX-License-Identifier: Apache-2.0
// The interposed functions that make, divide and end communicators and groups.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "capture/nccl/communicators.hpp"
#include "capture/nccl/functions.hpp"
#include "capture/nccl/groups.hpp"
#include "capture/nccl/grown.hpp"

using namespace ttrace::nccl;

namespace {

// Calls the real function, and then, where the call is the program's, `note(result)`.
template <class Forward, class Note>
ncclResult_t pass(const Forward& forward, const Note& note) {
  if (!watched()) return forward();
  ncclResult_t result;
  {
    const Nested guard;
    result = forward();
  }
  quietly([&] { note(result); });
  return result;
}

std::shared_ptr<Communicator> communicator(std::string group, int member, int size) {
  auto made = std::make_shared<Communicator>();
  made->group = std::move(group);
  made->member = member;
  made->size = size;
  return made;
}

// A child's name. `how` tells apart the children of one parent; all members of a child must come to
// the same text without asking each other.
std::string name_of_child(ncclComm_t parent, const std::string& how) {
  const auto known = find(parent);
  return group_of(known == nullptr ? std::string() : known->group, how);
}

// Forgotten before it ends: right after, another thread may get a new one at the same address.
template <class Forward>
ncclResult_t end(ncclComm_t comm, const Forward& forward, bool aborts) {
  std::shared_ptr<Communicator> ended;
  if (watched()) quietly([&] { ended = forget(comm); });
  return pass(forward, [&](ncclResult_t result) {
    if (ended == nullptr) return;
    complete_waiting(*ended, aborts);
    if (result != ncclSuccess && result != ncclInProgress) enter(comm, ended);
  });
}

}  // namespace

TTRACE_EXPORT ncclResult_t ncclGroupStart() {
  return pass(TTRACE_FORWARD(ncclGroupStart), [](ncclResult_t result) { group_started(result); });
}
TTRACE_EXPORT ncclResult_t ncclGroupEnd() {
  if (watched()) quietly(group_ending);
  return pass(TTRACE_FORWARD(ncclGroupEnd),
              [](ncclResult_t result) { group_ended(result, false); });
}

TTRACE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return pass(TTRACE_FORWARD(ncclCommInitRank, comm, size, id, rank), [&](ncclResult_t result) {
    made(comm, communicator(group_of(&id, 1), rank, size), result);
  });
}
TTRACE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                                  int rank, ncclConfig_t* config) {
  return pass(
      TTRACE_FORWARD(ncclCommInitRankConfig, comm, size, id, rank, config),
      [&](ncclResult_t result) { made(comm, communicator(group_of(&id, 1), rank, size), result); });
}
// All members are in this process, so any name will do that no other process uses.
TTRACE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  return pass(TTRACE_FORWARD(ncclCommInitAll, comms, count, devices), [&](ncclResult_t result) {
    static std::atomic<unsigned> number{0};
    const std::string group = group_of(of_this_process(), "all " + std::to_string(number++));
    for (int i = 0; i < count; ++i) made(comms + i, communicator(group, i, count), result);
  });
}
TTRACE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* comm,
                                         ncclConfig_t* config) {
  return pass(TTRACE_FORWARD(ncclCommSplit, parent, colour, key, comm, config),
              [&](ncclResult_t result) {
                const auto known = find(parent);
                if (known == nullptr) return;
                const std::string how =
                    "split " + std::to_string(known->splits++) + " " + std::to_string(colour);
                made(comm, communicator(name_of_child(parent, how), -1, -1), result);
              });
}
TTRACE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end(comm, TTRACE_FORWARD(ncclCommDestroy, comm), false);
}
TTRACE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end(comm, TTRACE_FORWARD(ncclCommAbort, comm), true);
}
TTRACE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return pass(TTRACE_FORWARD(ncclCommGetAsyncError, comm, error), [&](ncclResult_t result) {
    if (result == ncclSuccess && error != nullptr) state_known(comm, *error);
  });
}
TTRACE_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                    ncclDataType_t type,
                                                    ncclScalarResidence_t residence,
                                                    ncclComm_t comm) {
  return pass(TTRACE_FORWARD(ncclRedOpCreatePreMulSum, op, scalar, type, residence, comm),
              [&](ncclResult_t result) {
                if (result == ncclSuccess && residence == ncclScalarHostImmediate) {
                  keep_factor(comm, *op, scalar, type);
                }
              });
}
TTRACE_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return pass(TTRACE_FORWARD(ncclRedOpDestroy, op, comm), [&](ncclResult_t result) {
    if (result == ncclSuccess) drop_factor(comm, op);
  });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
TTRACE_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return pass(TTRACE_FORWARD(ncclGroupSimulateEnd, info),
              [](ncclResult_t result) { group_ended(result, true); });
}
TTRACE_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int count,
                                                    ncclUniqueId* ids, ncclConfig_t* config) {
  return pass(TTRACE_FORWARD(ncclCommInitRankScalable, comm, size, rank, count, ids, config),
              [&](ncclResult_t result) {
                made(comm, communicator(group_of(ids, count), rank, size), result);
              });
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
// The members that stay know who leaves; how often the same ones have left is equal on them, too.
TTRACE_EXPORT ncclResult_t ncclCommShrink(ncclComm_t parent, int* excluded, int count,
                                          ncclComm_t* comm, ncclConfig_t* config, int flags) {
  return pass(TTRACE_FORWARD(ncclCommShrink, parent, excluded, count, comm, config, flags),
              [&](ncclResult_t result) {
                const auto known = find(parent);
                if (known == nullptr) return;
                std::vector<int> out(excluded, excluded + count);
                std::sort(out.begin(), out.end());
                std::string how = "shrink";
                {
                  const std::lock_guard lock(known->mutex);
                  how += " " + std::to_string(known->shrinks[out]++);
                }
                for (const int member : out) how += " " + std::to_string(member);
                made(comm, communicator(name_of_child(parent, how), -1, -1), result);
              });
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
TTRACE_EXPORT ncclResult_t ncclCommGrow(ncclComm_t parent, int size, const ncclUniqueId* id,
                                        int rank, ncclComm_t* comm, ncclConfig_t* config) {
  std::string group;
  if (watched()) quietly([&] { group = group_before_grow(parent, id); });
  return pass(TTRACE_FORWARD(ncclCommGrow, parent, size, id, rank, comm, config),
              [&](ncclResult_t result) {
                if (group.empty() && id != nullptr) group = group_after_grow(*id);
                made(comm, communicator(group, -1, -1), result);
              });
}
#endif
