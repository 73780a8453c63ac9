// SPDX-License-Identifier: Apache-2.0
// A communicator of the fake NCCL, and the groups in which calls are collected.
#pragma once
#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "test/fake_nccl/operation.hpp"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

struct ncclComm {
  std::string name;  // of its shared memory; the same on all members
  int member = 0, size = 0, device = 0;
  bool blocking = true;
  std::shared_ptr<fake::Room> room;
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};

  std::mutex mutex;  // of what follows
  int splits = 0, grows = 0;
  std::map<std::vector<int>, int> shrinks;  // by the excluded members
  std::vector<fake::Reduction> reductions;  // of ncclRedOpCreatePreMulSum
  std::vector<const void*> factors;         // device residence: where they are
  cudaStream_t latest_stream = nullptr;
  cudaEvent_t latest = nullptr;  // recorded after the latest call: streams keep the calls' order
};

namespace fake {

// Whether calls on it are allowed now; otherwise what they return.
ncclResult_t ready(ncclComm_t comm);

// Makes a communicator, now or at the end of the group. Jobs of one `chain` run one after another
// (splits of one parent); different chains at the same time.
ncclResult_t make(ncclComm_t comm, const void* chain, std::function<bool(ncclComm_t)> attach);

// Collects the calls of this thread until the matching leave.
void enter_group();
ncclResult_t leave_group();

// A data call, enqueued when the outermost group ends (every call is in one).
void collect(ncclComm_t comm, cudaStream_t stream, const Operation& operation);
void spoil_group(ncclResult_t error);  // the group's end will return this

}  // namespace fake
