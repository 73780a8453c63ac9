// SPDX-License-Identifier: Apache-2.0
// The communicators of this process, under a name that is the same on all their members: a hash of
// the unique id, or of the parent's name and of how the child was made of it.
#pragma once
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/nccl/call.hpp"

namespace ttrace::nccl {

struct Communicator {
  std::string group;
  std::atomic<int> member{-1}, size{-1};  // -1: not yet asked
  std::atomic<std::uint64_t> calls{0};
  std::atomic<unsigned> splits{0}, grows{0};

  std::mutex mutex;                              // of what follows
  std::map<std::vector<int>, unsigned> shrinks;  // how often, by the members that left
  std::unordered_map<int, double> factors;       // of premultiplied sums
  std::vector<Pending> waiting;                  // calls that NCCL has not enqueued yet
  std::atomic<bool> has_waiting{false};
};

std::string group_of(const ncclUniqueId* ids, int count);
std::string group_of(std::string_view parent, std::string_view how);

// None when the communicator was made past us: then a name is made up.
std::shared_ptr<Communicator> find(ncclComm_t comm);
void enter(ncclComm_t comm, std::shared_ptr<Communicator> communicator);
std::shared_ptr<Communicator> forget(ncclComm_t comm);

// Asks NCCL for member and size once; false while the communicator is not ready.
bool know(ncclComm_t comm, Communicator& communicator);

}  // namespace ttrace::nccl
