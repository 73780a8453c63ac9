// SPDX-License-Identifier: Apache-2.0
// What capture uses of the CUDA driver, in its own words: cuda.h is not there when this is built.
// test/capture/device/driver_header.cpp compares the two where it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ttrace::cuda {

using Result = int;                  // CUresult
using Address = unsigned long long;  // CUdeviceptr

constexpr Result kInvalidContext = 201;
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kUntimedEvent = 2;
constexpr unsigned kPortable = 1;  // pinned for all contexts
constexpr int kAttributeContext = 1;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeManaged = 8;
constexpr int kAttributeDevice = 9;
constexpr unsigned kTypeHost = 1;  // pinned
constexpr unsigned kTypeDevice = 2;
constexpr Result kNotReady = 600;
constexpr Result kCaptureImplicit = 906;  // the default stream, while another is being captured
constexpr int kCaptureRelaxed = 2;
constexpr std::uintptr_t kSpecialStreams = 2;  // 0, 1, 2: the default ones of a context

// The functions: names without "cu".
struct Driver {
  Result (*pointer_attribute)(void*, int, Address);
  Result (*stream_context)(void*, void**);
  Result (*current_context)(void**);
  Result (*current_device)(int*);
  Result (*retain_primary)(void**, int);
  Result (*push_context)(void*);
  Result (*pop_context)(void**);
  Result (*exchange_capture_mode)(int*);
  Result (*is_capturing)(void*, int*);
  Result (*allocate)(Address*, std::size_t);
  Result (*release)(Address);
  Result (*pin)(void*, std::size_t, unsigned);
  Result (*unpin)(void*);
  Result (*create_stream)(void**, unsigned);
  Result (*destroy_stream)(void*);
  Result (*create_event)(void**, unsigned);
  Result (*destroy_event)(void*);
  Result (*record_event)(void*, void*);
  Result (*wait_event)(void*, void*, unsigned);
  Result (*query_event)(void*);
  Result (*copy)(Address, Address, std::size_t, void*);
  Result (*error_string)(Result, const char**);
};

}  // namespace ttrace::cuda
