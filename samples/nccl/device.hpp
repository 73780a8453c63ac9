// SPDX-License-Identifier: Apache-2.0
// A rank's device: a stream that stands for computing, one for communication, and how one waits for
// the other.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <span>

void check(cudaError_t error, const char* what);
void check(ncclResult_t result, const char* what);

class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Computing on the host stands between these two, so they wait for the computing stream.
  void upload(std::span<const float> values, float* to) const;
  void download(const float* from, std::span<float> values) const;

  // Enqueues `calls` on the communication stream, behind all that the computing stream holds now.
  // If it `waits`, what the computing stream gets from now on comes after them.
  void communicate(const std::function<void(cudaStream_t)>& calls, bool waits) const;
  // What the computing stream gets from now on comes after all communication up to now.
  void wait_for_communication() const;

 private:
  cudaStream_t computing_ = nullptr;
  cudaStream_t communication_ = nullptr;
  cudaEvent_t ready_ = nullptr;  // what goes into a call
  cudaEvent_t done_ = nullptr;   // the call
};

// Device memory for the largest tensor that this trainer communicates.
class Buffer {
 public:
  Buffer();
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Throws when it is too small for so many floats.
  [[nodiscard]] float* of(std::size_t count) const;

 private:
  float* memory_ = nullptr;
};
