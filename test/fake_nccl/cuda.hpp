// SPDX-License-Identifier: Apache-2.0
// What the parts of the fake CUDA runtime share.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "test/fake_nccl/stream.hpp"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

// Remembers an error for cudaGetLastError, of this thread.
cudaError_t fail(cudaError_t error);
int current_device();

// The stream behind a handle; none for a handle that is not one.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);

}  // namespace fake

// Runs what every stream holds without waiting for it: for library calls that block the host while
// other processes may wait for this one's streams.
FAKE_EXPORT void fake_cuda_demand_all();

// For onlookers such as a recorder: a stream that makes no other's work run, and a query that does
// not either.
FAKE_EXPORT cudaError_t fake_cuda_passive_stream(cudaStream_t* stream);
FAKE_EXPORT int fake_cuda_event_passed(cudaEvent_t event);
