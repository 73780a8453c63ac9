// SPDX-License-Identifier: Apache-2.0
// Communicators of the fake NCCL: making, dividing, ending.
#include "test/fake_nccl/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

FAKE_EXPORT void fake_cuda_demand_all();

namespace {

std::string name_of(const ncclUniqueId& id) {
  return std::string(id.internal, strnlen(id.internal, sizeof id.internal));
}

ncclComm_t new_comm(const ncclConfig_t* config, const ncclComm* parent) {
  auto* comm = new ncclComm;
  if (parent != nullptr) comm->blocking = parent->blocking;
  if (config != nullptr && config->blocking != NCCL_CONFIG_UNDEF_INT) {
    comm->blocking = config->blocking != 0;
  }
  cudaGetDevice(&comm->device);
  return comm;
}

bool open_room(ncclComm_t comm) {
  comm->room = fake::Room::open(comm->name, comm->member, comm->size, comm->aborted);
  return comm->room != nullptr;
}

ncclResult_t init(ncclComm_t* made, int size, std::string name, int member,
                  const ncclConfig_t* config) {
  if (made == nullptr || size < 1 || size > fake::kMostMembers || member < 0 || member >= size) {
    return ncclInvalidArgument;
  }
  *made = new_comm(config, nullptr);
  (*made)->name = std::move(name);
  (*made)->member = member;
  (*made)->size = size;
  return fake::make(*made, *made, open_room);
}

// Who has the same colour, in the order of (key, member of the parent).
bool divide(ncclComm_t parent, int colour, int key, int number, ncclComm_t child) {
  fake::Room& room = *parent->room;
  room.cell(parent->member, 0) = colour;
  room.cell(parent->member, 1) = key;
  if (!room.meet(fake::Room::kHost)) return false;
  std::vector<std::pair<std::int64_t, int>> members;
  for (int member = 0; member < parent->size; ++member) {
    if (room.cell(member, 0) == colour) members.emplace_back(room.cell(member, 1), member);
  }
  if (!room.meet(fake::Room::kHost)) return false;
  if (child == nullptr) return true;
  std::sort(members.begin(), members.end());
  const auto mine =
      std::find(members.begin(), members.end(), std::pair<std::int64_t, int>(key, parent->member));
  child->name = parent->name + ".s" + std::to_string(number) + "." + std::to_string(colour);
  child->member = static_cast<int>(mine - members.begin());
  child->size = static_cast<int>(members.size());
  return open_room(child);
}

}  // namespace

FAKE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  static std::atomic<unsigned> number{0};
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/fake_nccl.%d.%u.%08x", getpid(), number++,
                random());
  return ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                                int member, ncclConfig_t* config) {
  return init(comm, size, name_of(id), member, config);
}
FAKE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int member) {
  return init(comm, size, name_of(id), member, nullptr);
}
FAKE_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int member, int ids,
                                                  ncclUniqueId* id, ncclConfig_t* config) {
  if (ids < 1) return ncclInvalidArgument;
  return init(comm, size, name_of(id[0]), member, config);
}
FAKE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  int before = 0;
  cudaGetDevice(&before);
  fake::enter_group();
  for (int member = 0; member < devices; ++member) {
    cudaSetDevice(list != nullptr ? list[member] : member);
    init(comms + member, devices, name_of(id), member, nullptr);
  }
  cudaSetDevice(before);
  return fake::leave_group();
}
FAKE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* made,
                                       ncclConfig_t* config) {
  if (const ncclResult_t error = fake::ready(parent); error != ncclSuccess) return error;
  if (made == nullptr || colour < NCCL_SPLIT_NOCOLOR) return ncclInvalidArgument;
  const bool joins = colour != NCCL_SPLIT_NOCOLOR;
  *made = joins ? new_comm(config, parent) : nullptr;
  int number = 0;
  {
    const std::lock_guard guard(parent->mutex);
    number = parent->splits++;
  }
  ncclComm_t child = *made;
  // Who joins nothing has to vote, too; a throw-away communicator carries its state.
  ncclComm_t carrier = joins ? child : new_comm(config, parent);
  return fake::make(carrier, parent,
                    [=](ncclComm_t) { return divide(parent, colour, key, number, child); });
}
FAKE_EXPORT ncclResult_t ncclCommShrink(ncclComm_t parent, int* excluded, int count,
                                        ncclComm_t* made, ncclConfig_t* config, int flags) {
  if (parent == nullptr || made == nullptr || count < 0) return ncclInvalidArgument;
  if (flags & NCCL_SHRINK_ABORT) parent->aborted = true;
  std::vector<int> out(excluded, excluded + count);
  std::sort(out.begin(), out.end());
  if (std::binary_search(out.begin(), out.end(), parent->member)) return ncclInvalidArgument;
  ncclComm_t child = new_comm(config, parent);
  child->name = parent->name + ".k";
  {
    const std::lock_guard guard(parent->mutex);
    child->name += std::to_string(parent->shrinks[out]++);
  }
  for (const int member : out) child->name += "." + std::to_string(member);
  child->size = parent->size - count;
  child->member = parent->member -
                  static_cast<int>(std::count_if(
                      out.begin(), out.end(), [&](int member) { return member < parent->member; }));
  *made = child;
  return fake::make(child, child, open_room);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
// The id that one old member hands to the new ones is the name that all old ones come to.
static std::string name_of_grown(const ncclComm* parent, int number) {
  return parent->name + ".g" + std::to_string(number);
}
FAKE_EXPORT ncclResult_t ncclCommGetUniqueId(ncclComm_t parent, ncclUniqueId* id) {
  if (parent == nullptr || id == nullptr) return ncclInvalidArgument;
  const std::lock_guard guard(parent->mutex);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%s",
                name_of_grown(parent, parent->grows).c_str());
  return ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclCommGrow(ncclComm_t parent, int size, const ncclUniqueId* id,
                                      int member, ncclComm_t* made, ncclConfig_t* config) {
  if (parent == nullptr) {
    return id == nullptr ? ncclInvalidArgument : init(made, size, name_of(*id), member, config);
  }
  int number = 0;
  {
    const std::lock_guard guard(parent->mutex);
    number = parent->grows++;
  }
  return init(made, size, name_of_grown(parent, number), parent->member, config);
}
#endif

FAKE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  while (comm->state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fake_cuda_demand_all();
  cudaEvent_t latest = nullptr;
  {
    const std::lock_guard guard(comm->mutex);
    latest = comm->latest;
  }
  if (latest != nullptr && !comm->aborted) cudaEventSynchronize(latest);
  return comm->state == ncclRemoteError ? ncclRemoteError : ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const ncclResult_t result = ncclCommFinalize(comm);
  if (comm->latest != nullptr) cudaEventDestroy(comm->latest);
  delete comm;
  return result;
}
// What a stream still holds finds the communicator aborted, so it must stay.
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->aborted = true;
  return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const ncclResult_t error = fake::ready(comm);
  if (error == ncclSuccess) *count = comm->size;
  return error;
}
FAKE_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const ncclResult_t error = fake::ready(comm);
  if (error == ncclSuccess) *rank = comm->member;
  return error;
}
FAKE_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const ncclResult_t error = fake::ready(comm);
  if (error == ncclSuccess) *device = comm->device;
  return error;
}
// FAKE_NCCL_SLOW_ANSWER_MS: that it is in progress may be past when the caller hears it.
FAKE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = comm->state;
  static const char* const slow = std::getenv("FAKE_NCCL_SLOW_ANSWER_MS");
  if (slow != nullptr && *error == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(slow)));
  }
  return ncclSuccess;
}
