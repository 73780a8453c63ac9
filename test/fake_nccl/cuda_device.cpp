// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: devices and errors. FAKE_CUDA_DEVICES says how many there are (8).
#include <cstdlib>
#include <cstring>

#include "test/fake_nccl/cuda.hpp"

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("FAKE_CUDA_DEVICES");
    return text != nullptr ? std::atoi(text) : 8;
  }();
  return count;
}

struct Name {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr Name kNames[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"}};

Name name_of(cudaError_t error) {
  for (const Name& name : kNames) {
    if (name.error == error) return name;
  }
  return {error, "cudaErrorUnknown", "unknown error"};
}

}  // namespace

namespace fake {

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

int current_device() { return device; }

}  // namespace fake

FAKE_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaSetDevice(int number) {
  if (number < 0 || number >= device_count()) return fake::fail(cudaErrorInvalidDevice);
  device = number;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaGetDevice(int* number) {
  *number = device;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  if (number < 0 || number >= device_count()) return fake::fail(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "fake device");
  properties->totalGlobalMem = std::size_t{1} << 34;
  properties->major = 9;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaDeviceSynchronize() {
  fake::wait_for_all();
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaDeviceReset() {
  fake::wait_for_all();
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
FAKE_EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }
FAKE_EXPORT const char* cudaGetErrorName(cudaError_t error) { return name_of(error).name; }
FAKE_EXPORT const char* cudaGetErrorString(cudaError_t error) { return name_of(error).text; }
