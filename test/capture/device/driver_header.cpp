// SPDX-License-Identifier: Apache-2.0
// Compiled only, where there is a cuda.h: capture/device_cuda.hpp says what that does.
#include <cuda.h>

#include <type_traits>

#include "capture/device_cuda.hpp"

namespace {

using ttrace::cuda::Driver;

// Pointers are pointers, enumerations are int or unsigned: as a call passes them.
template <class Ours, class Theirs>
constexpr bool same() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return true;
  } else {
    return sizeof(Ours) == sizeof(Theirs) &&
           std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
  }
}

template <class Ours, class Theirs>
struct Alike;
template <class OurResult, class TheirResult, class... Ours, class... Theirs>
struct Alike<OurResult (*)(Ours...), TheirResult(Theirs...)> {
  static constexpr bool kValue = sizeof...(Ours) == sizeof...(Theirs) &&
                                 same<OurResult, TheirResult>() && (same<Ours, Theirs>() && ...);
};

#define SAME(member, function) \
  static_assert(Alike<decltype(Driver::member), decltype(function)>::kValue, #function)
SAME(pointer_attribute, cuPointerGetAttribute);
SAME(stream_context, cuStreamGetCtx);
SAME(current_context, cuCtxGetCurrent);
SAME(current_device, cuCtxGetDevice);
SAME(retain_primary, cuDevicePrimaryCtxRetain);
SAME(push_context, cuCtxPushCurrent);
SAME(pop_context, cuCtxPopCurrent);
SAME(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
SAME(is_capturing, cuStreamIsCapturing);
SAME(allocate, cuMemAlloc);
SAME(release, cuMemFree);
SAME(pin, cuMemHostRegister);
SAME(unpin, cuMemHostUnregister);
SAME(create_stream, cuStreamCreate);
SAME(destroy_stream, cuStreamDestroy);
SAME(create_event, cuEventCreate);
SAME(destroy_event, cuEventDestroy);
SAME(record_event, cuEventRecord);
SAME(wait_event, cuStreamWaitEvent);
SAME(query_event, cuEventQuery);
SAME(copy, cuMemcpyAsync);
SAME(error_string, cuGetErrorString);

using namespace ttrace::cuda;
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(kNonBlockingStream == CU_STREAM_NON_BLOCKING);
static_assert(kUntimedEvent == CU_EVENT_DISABLE_TIMING);
static_assert(kPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kAttributeContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(kAttributeMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kAttributeManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(kAttributeDevice == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kTypeHost == CU_MEMORYTYPE_HOST);
static_assert(kTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(sizeof(Address) == sizeof(CUdeviceptr));

// The versions behind the names: device_cuda.cpp looks for these.
#define TEXT(name) #name
#define NAME(function) TEXT(function)
constexpr bool equal(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}
static_assert(equal(NAME(cuCtxPushCurrent), "cuCtxPushCurrent_v2"));
static_assert(equal(NAME(cuCtxPopCurrent), "cuCtxPopCurrent_v2"));
static_assert(equal(NAME(cuMemAlloc), "cuMemAlloc_v2"));
static_assert(equal(NAME(cuMemFree), "cuMemFree_v2"));
static_assert(equal(NAME(cuMemHostRegister), "cuMemHostRegister_v2"));
static_assert(equal(NAME(cuStreamDestroy), "cuStreamDestroy_v2"));
static_assert(equal(NAME(cuEventDestroy), "cuEventDestroy_v2"));
static_assert(equal(NAME(cuEventRecord), "cuEventRecord"));
static_assert(equal(NAME(cuStreamWaitEvent), "cuStreamWaitEvent"));
static_assert(equal(NAME(cuMemcpyAsync), "cuMemcpyAsync"));
static_assert(equal(NAME(cuStreamGetCtx), "cuStreamGetCtx"));

}  // namespace
