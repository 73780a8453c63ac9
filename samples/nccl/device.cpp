// SPDX-License-Identifier: Apache-2.0
// See device.hpp.
#include "samples/nccl/device.hpp"

#include <stdexcept>
#include <string>

namespace {

constexpr std::size_t kCapacity = 1 << 14;  // floats

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}

Device::Device() {
  check(cudaStreamCreateWithFlags(&computing_, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaStreamCreateWithFlags(&communication_, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
}

Device::~Device() {
  cudaStreamSynchronize(communication_);
  cudaEventDestroy(ready_);
  cudaEventDestroy(done_);
  cudaStreamDestroy(communication_);
  cudaStreamDestroy(computing_);
}

void Device::upload(std::span<const float> values, float* to) const {
  check(cudaMemcpyAsync(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, computing_),
        "cudaMemcpyAsync");
}

void Device::download(const float* from, std::span<float> values) const {
  check(
      cudaMemcpyAsync(values.data(), from, values.size_bytes(), cudaMemcpyDeviceToHost, computing_),
      "cudaMemcpyAsync");
  check(cudaStreamSynchronize(computing_), "cudaStreamSynchronize");
}

void Device::communicate(const std::function<void(cudaStream_t)>& calls, bool waits) const {
  check(cudaEventRecord(ready_, computing_), "cudaEventRecord");
  check(cudaStreamWaitEvent(communication_, ready_, 0), "cudaStreamWaitEvent");
  calls(communication_);
  check(cudaEventRecord(done_, communication_), "cudaEventRecord");
  if (waits) wait_for_communication();
}

void Device::wait_for_communication() const {
  check(cudaStreamWaitEvent(computing_, done_, 0), "cudaStreamWaitEvent");
}

Buffer::Buffer() {
  void* memory = nullptr;
  check(cudaMalloc(&memory, kCapacity * sizeof(float)), "cudaMalloc");
  memory_ = static_cast<float*>(memory);
}

Buffer::~Buffer() { cudaFree(memory_); }

float* Buffer::of(std::size_t count) const {
  if (count > kCapacity) {
    throw std::runtime_error("a tensor of " + std::to_string(count) +
                             " floats is too large for the buffers of this trainer");
  }
  return memory_;
}
