// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: memory. Device memory is host memory; freed memory is overwritten first,
// so that who still reads it gets wrong values. Copies from pageable memory take their bytes at
// once and copies to it are waited for, as CUDA promises; all others are as late as their stream.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "test/fake_nccl/cuda.hpp"

namespace {

struct Block {
  std::size_t bytes;
  cudaMemoryType type;
  bool owned;  // allocated here
};

std::mutex& blocks_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::map<std::uintptr_t, Block>& blocks() {
  static auto* map = new std::map<std::uintptr_t, Block>;
  return *map;
}

cudaMemoryType type_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard guard(blocks_mutex());
  auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return cudaMemoryTypeUnregistered;
  const auto& [start, block] = *--after;
  return address - start < block.bytes ? block.type : cudaMemoryTypeUnregistered;
}

void remember(void* pointer, const Block& block) {
  const std::lock_guard guard(blocks_mutex());
  blocks()[reinterpret_cast<std::uintptr_t>(pointer)] = block;
}

cudaError_t allocate(void** pointer, std::size_t bytes, cudaMemoryType type) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t padded = (bytes + kAlignment) / kAlignment * kAlignment;
  *pointer = std::aligned_alloc(kAlignment, padded);
  if (*pointer == nullptr) return fake::fail(cudaErrorMemoryAllocation);
  std::memset(*pointer, 0xcd, padded);
  remember(*pointer, {padded, type, true});
  return cudaSuccess;
}

cudaError_t release(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  std::size_t bytes = 0;
  {
    const std::lock_guard guard(blocks_mutex());
    const auto found = blocks().find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == blocks().end() || !found->second.owned) {
      return fake::fail(cudaErrorInvalidValue);
    }
    bytes = found->second.bytes;
    blocks().erase(found);
  }
  std::memset(pointer, 0xdd, bytes);
  std::free(pointer);
  return cudaSuccess;
}

}  // namespace

FAKE_EXPORT cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return allocate(pointer, bytes, cudaMemoryTypeDevice);
}
FAKE_EXPORT cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned int) {
  return allocate(pointer, bytes, cudaMemoryTypeManaged);
}
FAKE_EXPORT cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
  return allocate(pointer, bytes, cudaMemoryTypeDevice);
}
FAKE_EXPORT cudaError_t cudaFree(void* pointer) {
  fake::wait_for_all();
  return release(pointer);
}
FAKE_EXPORT cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  fake::submit(stream, [pointer] { release(pointer); });
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate(pointer, bytes, cudaMemoryTypeHost);
}
FAKE_EXPORT cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
  return allocate(pointer, bytes, cudaMemoryTypeHost);
}
FAKE_EXPORT cudaError_t cudaFreeHost(void* pointer) {
  fake::wait_for_all();
  return release(pointer);
}
FAKE_EXPORT cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int) {
  remember(pointer, {bytes, cudaMemoryTypeHost, false});
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaHostUnregister(void* pointer) {
  const std::lock_guard guard(blocks_mutex());
  blocks().erase(reinterpret_cast<std::uintptr_t>(pointer));
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = *total = std::size_t{1} << 34;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                 const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = type_of(pointer);
  if (attributes->type == cudaMemoryTypeUnregistered) return cudaSuccess;
  attributes->device = fake::current_device();
  attributes->devicePointer = const_cast<void*>(pointer);
  if (attributes->type != cudaMemoryTypeDevice) {
    attributes->hostPointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                        cudaMemcpyKind, cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  if (type_of(from) == cudaMemoryTypeUnregistered) {
    const auto* first = static_cast<const char*>(from);
    auto taken = std::make_shared<std::vector<char>>(first, first + bytes);
    const auto end =
        fake::submit(stream, [to, taken] { std::memcpy(to, taken->data(), taken->size()); });
    if (type_of(to) == cudaMemoryTypeUnregistered) stream->wait(end);
    return cudaSuccess;
  }
  const auto end = fake::submit(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
  if (type_of(to) == cudaMemoryTypeUnregistered) stream->wait(end);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}
FAKE_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes,
                                        cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  fake::submit(stream, [to, value, bytes] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
