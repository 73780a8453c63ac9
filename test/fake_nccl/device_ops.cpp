// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime as the device that capture copies from: TTRACE_DEVICE_OPS names this
// library. It looks on only, so that a program's missing wait stays visible while it is recorded.
#include "capture/device_ops.hpp"

#include "test/fake_nccl/cuda.hpp"

namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

int context_of(void*, const void*, void** context) {
  static int only;
  *context = &only;
  return 0;
}
int enter(void*, int* mode) { return *mode = 0; }
void leave(int) {}
int memory_kind(const void* data, ttrace::MemoryKind* kind) {
  cudaPointerAttributes attributes;
  const int error = cudaPointerGetAttributes(&attributes, data);
  *kind = attributes.type == cudaMemoryTypeUnregistered ? ttrace::kUnknownMemory
          : attributes.type == cudaMemoryTypeHost       ? ttrace::kPinnedMemory
                                                        : ttrace::kDeviceMemory;
  return error;
}
int capturing(void*, int* yes) { return *yes = 0; }
int allocate(std::size_t bytes, void** memory) { return cudaMalloc(memory, bytes); }
int release(void* memory) {
  static const cudaStream_t own = [] {
    cudaStream_t stream = nullptr;
    fake_cuda_passive_stream(&stream);
    return stream;
  }();
  return cudaFreeAsync(memory, own);
}
int pin(void* host, std::size_t bytes) { return cudaHostRegister(host, bytes, 0); }
int unpin(void* host) { return cudaHostUnregister(host); }
int create_stream(void** stream) {
  return fake_cuda_passive_stream(reinterpret_cast<cudaStream_t*>(stream));
}
int destroy_stream(void* stream) { return cudaStreamDestroy(stream_of(stream)); }
int create_event(void** event) { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)); }
int destroy_event(void* event) { return cudaEventDestroy(event_of(event)); }
int record_event(void* event, void* stream) {
  return cudaEventRecord(event_of(event), stream_of(stream));
}
int wait_event(void* stream, void* event) {
  return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
}
int event_done(void* event, int* yes) {
  *yes = fake_cuda_event_passed(event_of(event));
  return 0;
}
int copy(void* to, const void* from, std::size_t bytes, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
}
const char* explain(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

constexpr ttrace::DeviceOps kTable{sizeof(ttrace::DeviceOps),
                                   context_of,
                                   enter,
                                   leave,
                                   memory_kind,
                                   capturing,
                                   allocate,
                                   release,
                                   pin,
                                   unpin,
                                   create_stream,
                                   destroy_stream,
                                   create_event,
                                   destroy_event,
                                   record_event,
                                   wait_event,
                                   event_done,
                                   copy,
                                   explain};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ttrace::DeviceOps* ttrace_device_ops() {
  return &kTable;
}
