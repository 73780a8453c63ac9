// SPDX-License-Identifier: Apache-2.0
// The fake device as a libcuda.so.1, so that the table of the CUDA driver can be tested: under the
// names and with the meanings that cuda.h gives. Device n is context n + 1.
#include <cstdint>

#include "capture/device_ops.hpp"
#include "test/capture/device/fake_device.hpp"

#define DRIVER extern "C" FAKE_DEVICE_EXPORT int

namespace {

using Address = unsigned long long;

const ttrace::DeviceOps& ops() { return *ttrace_device_ops(); }
void* pointer(Address address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
void* context(int number) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number)); }

thread_local int capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
constexpr int kRelaxed = 2;

}  // namespace

DRIVER cuPointerGetAttribute(void* value, int attribute, Address address) {
  const int found = fake_device::context_of_memory(pointer(address));
  if (found == 0) return 1;
  switch (attribute) {
    case 1:  // the context; memory of pools, here that of device 1, has none
      *static_cast<void**>(value) = found == 2 ? nullptr : context(found);
      return 0;
    case 2:
      *static_cast<unsigned*>(value) = fake_device::is_pinned(pointer(address)) ? 1 : 2;
      return 0;
    case 8:
      *static_cast<unsigned*>(value) = 0;
      return 0;
    case 9:
      *static_cast<int*>(value) = found - 1;
      return 0;
    default:
      return 1;
  }
}
DRIVER cuStreamGetCtx(void* stream, void** result) {
  return ops().context_of(stream, nullptr, result);
}
DRIVER cuCtxGetCurrent(void** result) {
  *result = context(fake_device::current_context());
  return 0;
}
DRIVER cuCtxGetDevice(int* device) {
  *device = fake_device::current_context() - 1;
  return *device < 0 ? 201 : 0;
}
DRIVER cuDevicePrimaryCtxRetain(void** result, int device) {
  *result = context(device + 1);
  return 0;
}
DRIVER cuCtxPushCurrent_v2(void* pushed) {
  int mode = 0;
  return ops().enter(pushed, &mode);
}
DRIVER cuCtxPopCurrent_v2(void** popped) {
  *popped = context(fake_device::current_context());
  ops().leave(7);
  return 0;
}
DRIVER cuThreadExchangeStreamCaptureMode(int* mode) {
  const int former = capture_mode;
  capture_mode = *mode;
  *mode = former;
  return 0;
}
DRIVER cuStreamIsCapturing(void* stream, int* status) { return ops().capturing(stream, status); }

// What a capture in another thread forbids, unless this one says that it knows better.
DRIVER cuMemAlloc_v2(Address* address, std::size_t bytes) {
  if (capture_mode != kRelaxed) return 900;
  void* memory = nullptr;
  const int error = ops().allocate(bytes, &memory);
  *address = static_cast<Address>(reinterpret_cast<std::uintptr_t>(memory));
  return error;
}
DRIVER cuEventQuery(void* event) {
  if (capture_mode != kRelaxed) return 900;
  int yes = 0;
  const int error = ops().event_done(event, &yes);
  return error != 0 ? error : yes != 0 ? 0 : 600;
}
DRIVER cuMemFree_v2(Address address) { return ops().release(pointer(address)); }
DRIVER cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags) {
  return flags == 1 ? ops().pin(host, bytes) : 1;
}
DRIVER cuMemHostUnregister(void* host) { return ops().unpin(host); }
DRIVER cuStreamCreate(void** stream, unsigned flags) {
  return flags == 1 ? ops().create_stream(stream) : 1;
}
DRIVER cuStreamDestroy_v2(void* stream) { return ops().destroy_stream(stream); }
DRIVER cuEventCreate(void** event, unsigned flags) {
  return flags == 2 ? ops().create_event(event) : 1;
}
DRIVER cuEventDestroy_v2(void* event) { return ops().destroy_event(event); }
DRIVER cuEventRecord(void* event, void* stream) { return ops().record_event(event, stream); }
DRIVER cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return flags == 0 ? ops().wait_event(stream, event) : 1;
}
DRIVER cuMemcpyAsync(Address to, Address from, std::size_t bytes, void* stream) {
  return ops().copy(pointer(to), pointer(from), bytes, stream);
}
DRIVER cuGetErrorString(int error, const char** text) {
  *text = ops().explain(error);
  return 0;
}
