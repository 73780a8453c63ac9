// SPDX-License-Identifier: Apache-2.0
// Groups of the fake NCCL: see communicator.hpp. On a communicator that does not block, calls reach
// their streams only some milliseconds after the group has ended with ncclInProgress.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "test/fake_nccl/communicator.hpp"

FAKE_EXPORT void fake_cuda_demand_all();

namespace fake {
namespace {

struct Job {
  ncclComm_t comm;
  const void* chain;
  std::function<bool(ncclComm_t)> attach;
};
struct Batch {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Operation> operations;
};
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Job> jobs;
  std::vector<Batch> batches;
};
thread_local Group group;

constexpr auto kLate = std::chrono::milliseconds(5);

void attach(const Job& job) {
  const bool good = job.attach(job.comm);
  job.comm->state = good ? ncclSuccess : job.comm->aborted ? ncclSuccess : ncclRemoteError;
}

// Those of one chain in their order, each chain on a thread of its own.
ncclResult_t run_jobs(std::vector<Job> jobs) {
  if (jobs.empty()) return ncclSuccess;
  fake_cuda_demand_all();
  bool late = false;
  std::vector<ncclComm_t> waited;
  std::vector<std::thread> threads;
  for (auto first = jobs.begin(); first != jobs.end();) {
    const auto chain = first->chain;
    const auto end = std::stable_partition(first, jobs.end(),
                                           [&](const Job& job) { return job.chain == chain; });
    const bool blocking =
        std::all_of(first, end, [](const Job& job) { return job.comm->blocking; });
    std::thread thread([blocking, work = std::vector<Job>(first, end)] {
      if (!blocking) std::this_thread::sleep_for(kLate);
      for (const Job& job : work) attach(job);
    });
    if (blocking) {
      threads.push_back(std::move(thread));
      for (; first != end; ++first) waited.push_back(first->comm);
    } else {
      thread.detach();
      late = true;
    }
    first = end;
  }
  for (std::thread& thread : threads) thread.join();
  for (const ncclComm_t comm : waited) {
    if (comm->state != ncclSuccess) return comm->state;
  }
  return late ? ncclInProgress : ncclSuccess;
}

struct Launch {
  ncclComm_t comm;
  std::vector<Operation> operations;
};

void run_launch(void* data) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(data));
  ncclComm_t comm = launch->comm;
  if (comm->aborted || comm->state == ncclRemoteError) return;
  if (!carry_out(*comm->room, comm->member, comm->size, launch->operations) && !comm->aborted) {
    comm->state = ncclRemoteError;
  }
}

ncclResult_t enqueue(const Batch& batch) {
  ncclComm_t comm = batch.comm;
  const std::lock_guard guard(comm->mutex);
  if (comm->latest == nullptr) {
    cudaEventCreateWithFlags(&comm->latest, cudaEventDisableTiming);
  } else if (comm->latest_stream != batch.stream) {
    cudaStreamWaitEvent(batch.stream, comm->latest, 0);
  }
  auto launch = std::make_unique<Launch>(Launch{comm, batch.operations});
  if (cudaLaunchHostFunc(batch.stream, run_launch, launch.get()) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  launch.release();
  cudaEventRecord(comm->latest, batch.stream);
  comm->latest_stream = batch.stream;
  return ncclSuccess;
}

ncclResult_t run_batches(const std::vector<Batch>& batches) {
  bool late = false;
  for (const Batch& batch : batches) {
    if (batch.comm->blocking) {
      if (const ncclResult_t error = enqueue(batch); error != ncclSuccess) return error;
      continue;
    }
    late = true;
    batch.comm->state = ncclInProgress;
    std::thread([batch] {
      std::this_thread::sleep_for(kLate);
      batch.comm->state = enqueue(batch);
    }).detach();
  }
  return late ? ncclInProgress : ncclSuccess;
}

}  // namespace

ncclResult_t ready(ncclComm_t comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  const ncclResult_t state = comm->state;
  return state == ncclInProgress ? ncclInvalidArgument : state;
}

ncclResult_t make(ncclComm_t comm, const void* chain, std::function<bool(ncclComm_t)> attach_it) {
  comm->state = ncclInProgress;
  enter_group();
  group.jobs.push_back({comm, chain, std::move(attach_it)});
  return leave_group();
}

void enter_group() { ++group.depth; }

ncclResult_t leave_group() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  Group done;
  std::swap(done, group);
  if (done.error != ncclSuccess) return done.error;
  const ncclResult_t made = run_jobs(std::move(done.jobs));
  if (made != ncclSuccess && made != ncclInProgress) return made;
  const ncclResult_t launched = run_batches(done.batches);
  return launched == ncclSuccess ? made : launched;
}

void collect(ncclComm_t comm, cudaStream_t stream, const Operation& operation) {
  for (Batch& batch : group.batches) {
    if (batch.comm == comm && batch.stream == stream) {
      batch.operations.push_back(operation);
      return;
    }
  }
  group.batches.push_back({comm, stream, {operation}});
}

void spoil_group(ncclResult_t error) { group.error = error; }

}  // namespace fake
