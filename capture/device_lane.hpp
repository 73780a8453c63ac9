// SPDX-License-Identifier: Apache-2.0
// The copies of one context (of a device, mostly). Bytes are first copied within the device, into
// its staging memory and on the producer's stream, which delays that stream least and sees exactly
// what the stream has written; a second stream takes them to the host. Without memory for that,
// they go to the host on the producer's stream.
//
// Staging memory is used round and round. Whoever comes to a part that is still being read makes
// its stream wait, not its thread. Since the second stream works in order, the latest copy from the
// part is the one to wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "capture/device_completion.hpp"
#include "capture/device_ops.hpp"

namespace ttrace {

class DeviceLane {
 public:
  // To be used with `context` current, by one thread at a time. staging_bytes: less is taken when
  // the device does not have as much.
  DeviceLane(const DeviceOps& ops, void* context, std::size_t staging_bytes);
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;
  void destroy();  // when no copy is under way

  [[nodiscard]] int error() const { return error_; }  // nothing can be copied any more
  [[nodiscard]] void* context() const { return context_; }
  [[nodiscard]] std::size_t staging_bytes() const { return staging_bytes_; }

  // Begins the copy of what `from` holds when the work in `stream` so far is done. At most half of
  // staging_bytes at once, if there are any. The result is to be added to a DeviceCompletion, in
  // the order of these calls.
  [[nodiscard]] LateBytes copy(std::span<std::byte> to, const std::byte* from, void* stream);

 private:
  struct Mark {  // an event that a copy has or had
    std::uint64_t copy = 0;
    void* event = nullptr;
  };
  struct Slot {  // of staging memory, [begin, end) counted without going round
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    Mark mark;
  };

  [[nodiscard]] int make(std::size_t staging_bytes);
  [[nodiscard]] int next_event(void** event);
  // Where the next bytes go; `stream` waits until they may.
  [[nodiscard]] int claim(std::size_t bytes, void* stream, Slot& slot);
  [[nodiscard]] int begin(std::span<std::byte> to, const std::byte* from, void* stream,
                          void* event);
  [[nodiscard]] int to_host(std::span<std::byte> to, const std::byte* staged, void* stream,
                            void* event);
  [[nodiscard]] bool ended(const Mark& mark) const { return mark.copy < ended_; }

  const DeviceOps& ops_;
  void* context_;
  int error_ = 0;
  void* stream_ = nullptr;  // to the host
  void* staged_ = nullptr;  // an event: the latest copy into staging memory
  void* staging_ = nullptr;
  std::size_t staging_bytes_ = 0;
  std::uint64_t claimed_ = 0;  // where in staging memory the next slot begins
  std::deque<Slot> slots_;     // oldest first
  std::deque<Mark> marks_;     // all events, the one used longest ago first
  std::uint64_t begun_ = 0;    // copies
  std::atomic<std::uint64_t> ended_{0};
};

}  // namespace ttrace
