// SPDX-License-Identifier: Apache-2.0
// Settles the ring's reservations in the order in which they were made, each when the copy into it
// has ended: a thread that asks the events of the copies. Behind the bytes of each tensor it writes
// the verdict, 0 or the device's error.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

#include "capture/device_ops.hpp"
#include "libttrace/core/message.hpp"
#include "libttrace/core/ring.hpp"

namespace ttrace {

// What one reservation waits for: a copy, or its turn to hold a part of the verdict.
struct LateBytes {
  void* event = nullptr;  // of the copy; nullptr: none was begun
  void* context = nullptr;
  std::atomic<std::uint64_t>* ended = nullptr;  // counts the copies that have, when not nullptr
  int error = 0;                                // why none was begun
  std::span<std::byte> verdict;
  std::size_t verdict_at = 0;  // its bytes before these
};

class DeviceCompletion {
 public:
  DeviceCompletion(RingProducer& ring, const DeviceOps& ops);
  ~DeviceCompletion();  // after stop()
  DeviceCompletion(const DeviceCompletion&) = delete;
  DeviceCompletion& operator=(const DeviceCompletion&) = delete;

  void add(const LateBytes& bytes);
  // Waits until all has been settled, and ends the thread; false when nothing moved for `patience`:
  // the device may then still write into the ring.
  [[nodiscard]] bool stop(std::chrono::milliseconds patience);

 private:
  void run();
  [[nodiscard]] bool finish(const LateBytes& bytes);
  [[nodiscard]] bool copy_ended(const LateBytes& bytes);

  RingProducer& ring_;
  const DeviceOps& ops_;
  Verdict verdict_ = 0;  // on the tensor whose bytes are coming; the thread's own

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LateBytes> waiting_;
  std::uint64_t settled_ = 0;
  enum class Goal : std::uint8_t { run, drain, give_up } goal_ = Goal::run;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ttrace
