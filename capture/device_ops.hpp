// SPDX-License-Identifier: Apache-2.0
// All that capture asks of a device, as a table of functions: the CUDA driver's, or those of a
// library that stands in for a device where there is none. Streams, events and contexts are handles
// of who made the table (CUstream, CUevent, CUcontext). Every function returns 0 or the maker's
// error code, and none waits for the device, with the exception of `release`, `unpin` and the
// destroying ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ttrace {

enum MemoryKind : int {
  kUnknownMemory,  // the host's
  kPinnedMemory,   // the host's, where the device can read and write it
  kDeviceMemory    // managed memory, too: a kernel may still be writing it
};

struct DeviceOps {
  std::uint32_t struct_size;
  // The context in which the work of `stream` runs, on whose memory `data` lies.
  int (*context_of)(void* stream, const void* data, void** context);
  // Around calls of this thread: the context is current, and calls that a graph capture of another
  // thread forbids are allowed. `mode` is kept for leave().
  int (*enter)(void* context, int* mode);
  void (*leave)(int mode);
  int (*memory_kind)(const void* data, MemoryKind* kind);
  int (*capturing)(void* stream, int* yes);  // into a graph: work is noted instead of done
  int (*allocate)(std::size_t bytes, void** memory);
  int (*release)(void* memory);
  int (*pin)(void* host, std::size_t bytes);  // for all contexts
  int (*unpin)(void* host);
  int (*create_stream)(void** stream);  // never waits for the default stream
  int (*destroy_stream)(void* stream);
  int (*create_event)(void** event);
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  // The stream's later work waits for what was in `event` when this was called.
  int (*wait_event)(void* stream, void* event);
  int (*event_done)(void* event, int* yes);
  int (*copy)(void* to, const void* from, std::size_t bytes, void* stream);  // any direction
  const char* (*explain)(int error);
};

// The table for tensors that are on a device (`load`), or may be: then only a driver that the
// program has loaded itself is asked, which costs little while there is none. nullptr when there is
// none; with `load`, `why` says what is missing.
// TTRACE_DEVICE_OPS=<library>, for tests only: the library's `ttrace_device_ops` makes the table.
[[nodiscard]] const DeviceOps* device_ops(bool load, std::string& why);

// The CUDA driver's, behind device_ops().
[[nodiscard]] const DeviceOps* cuda_device_ops(bool load, std::string& why);

}  // namespace ttrace

// What the library of TTRACE_DEVICE_OPS has.
extern "C" const ttrace::DeviceOps* ttrace_device_ops();
