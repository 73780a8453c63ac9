// SPDX-License-Identifier: Apache-2.0
// A device for tests: its memory is the host's, each stream is a queue that a thread of its own
// works off, with random pauses, so that streams run late and in any order that events leave open.
// It is as strict as a driver: handles belong to contexts, and calls need a current one. Threads
// meet nowhere but in events, so that a sanitizer sees what no event orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#define FAKE_DEVICE_EXPORT __attribute__((visibility("default")))

namespace fake_device {

// ---- what a program does ----
// Context 1, 2, ...: made current for this thread, as cudaSetDevice would.
FAKE_DEVICE_EXPORT void use_context(int context);
// A stream that is nullptr is the default one of the current context.
FAKE_DEVICE_EXPORT void* make_stream();  // in the current context
FAKE_DEVICE_EXPORT void launch(void* stream, std::function<void()> kernel);
FAKE_DEVICE_EXPORT void synchronize(void* stream);
FAKE_DEVICE_EXPORT void* allocate(std::size_t bytes);
FAKE_DEVICE_EXPORT void* allocate_pinned(std::size_t bytes);  // of the host
FAKE_DEVICE_EXPORT void release(void* memory);                // spoils its bytes first

// ---- what a test arranges ----
FAKE_DEVICE_EXPORT void set_pause(unsigned microseconds);  // at most, before each piece of work
FAKE_DEVICE_EXPORT void hold(void* stream);                // its later work does not begin
FAKE_DEVICE_EXPORT void let_go(void* stream);
FAKE_DEVICE_EXPORT void set_capturing(void* stream, bool capturing);
FAKE_DEVICE_EXPORT void set_largest_allocation(std::size_t bytes);
FAKE_DEVICE_EXPORT void fail_copy_from(const void* memory);  // error 700, at the call
FAKE_DEVICE_EXPORT void break_context(int context);          // its events answer 719 from now on
FAKE_DEVICE_EXPORT void forbid_pinning();

struct Counts {
  std::uint64_t copies;
  std::uint64_t waits;
  std::uint64_t events;  // that exist
  std::uint64_t allocated_bytes;
  std::uint64_t pinned_bytes;
  std::uint64_t streams;  // that exist
};
FAKE_DEVICE_EXPORT Counts counts();
// Of the context in which it was allocated; 0: the device knows nothing of it.
FAKE_DEVICE_EXPORT int context_of_memory(const void* memory);
FAKE_DEVICE_EXPORT bool is_pinned(const void* memory);
FAKE_DEVICE_EXPORT int current_context();  // 0: none

}  // namespace fake_device
