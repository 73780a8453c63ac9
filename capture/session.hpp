// SPDX-License-Identifier: Apache-2.0
// One rank's capture, as the traced process sees it: a ring to a writer process, and the little
// that must be known here (the current iteration, sequence numbers). All methods may be called from
// any thread, in any order, at any time; they report errors as negative errno values and never wait
// for anything but room in the ring. Three ends are possible: closed; disarmed, when the writer
// died; inert, in a forked child, which shares nothing with its parent's writer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/device_capture.hpp"
#include "capture/settings.hpp"
#include "capture/tensor_check.hpp"
#include "capture/ttrace.h"
#include "libttrace/core/key.hpp"
#include "libttrace/core/message.hpp"
#include "libttrace/core/ring.hpp"

namespace ttrace {

class Feed;

struct MeshAxis {
  std::string name;
  std::int32_t size = 1;
  std::int32_t coordinate = 0;
};

class Session {
 public:
  Session();
  ~Session();
  int open(const ttrace_options* options);
  [[nodiscard]] bool active() const { return active_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t iteration() const {
    return active() ? iteration_.load(std::memory_order_relaxed) : -1;
  }
  int set(const char* json);
  int note(const char* what, const char* where, const char* why);
  int begin_iteration(std::int64_t iteration);
  int end_iteration();
  int begin_microbatch(std::int32_t microbatch);
  [[nodiscard]] std::int32_t microbatch();
  int axis(const char* name, std::int32_t size, std::int32_t coordinate);
  int group(const char* name, const std::int32_t* ranks, std::size_t count);
  int record_collective(const ttrace_collective* call);
  [[nodiscard]] int collectives_wanted();
  bool pause(bool paused) { return paused_.exchange(paused, std::memory_order_relaxed); }
  std::int64_t record(const ttrace_tensor* tensor);
  int feed(const ttrace_tensor* tensor, void* data);
  int close();
  // At process exit: gives up, instead of waiting for a thread that will never let go.
  void close_at_exit();
  void make_child_inert();

  [[nodiscard]] std::string last_error();
  // Remembers an error that had no other place; returns -error.
  int remember(int error, std::string_view text);
  // An argument of a call that works without a capture, too: one that runs is marked degraded.
  int refuse(std::string_view where, std::string_view text);

 private:
  int open_writer();
  int set_locked(std::string_view json);
  int fail(int error, std::string_view where, std::string_view text);
  int disarm();
  int close_locked(std::chrono::milliseconds patience);
  [[nodiscard]] bool collecting() const { return ring_ != nullptr && wanted_; }
  [[nodiscard]] bool send(std::span<const std::byte> bytes);
  [[nodiscard]] bool send(std::string_view text);
  template <class Body>
  [[nodiscard]] bool send_body(const Body& body) {
    return send(std::as_bytes(std::span(&body, 1)));
  }
  [[nodiscard]] bool send_header(MessageType type, std::uint64_t bytes);
  [[nodiscard]] bool send_note(std::string_view what, std::string_view where, std::string_view why,
                               std::uint32_t degrades);
  [[nodiscard]] bool send_record(const ttrace_tensor& tensor, const CheckedTensor& checked,
                                 std::uint8_t kind, DeviceCapture::Place& place);
  [[nodiscard]] bool send_estimate();
  void update_active();

  // ---- of devices (session_device.cpp) ----
  [[nodiscard]] int find_device(const ttrace_tensor& tensor, const CheckedTensor& checked,
                                DeviceCapture::Place& place);
  [[nodiscard]] bool follows_a_stream(const ttrace_tensor& tensor) const;
  bool say_no_driver(const std::string& where);
  // False: copies into it do not end, so that it had to stay.
  bool release_ring(std::chrono::milliseconds patience);

  // ---- of a replay (session_feed.cpp) ----
  [[nodiscard]] std::string open_feed();  // why it cannot be, or ""
  void learn(std::string_view json);
  // Whether the pack's value is recorded instead, and that value.
  [[nodiscard]] bool replaced_parameter(const ttrace_tensor& tensor, const CheckedTensor& checked,
                                        std::vector<std::byte>& bytes) const;
  [[nodiscard]] bool steps_from_unknown_state(const ttrace_tensor& tensor) const;
  [[nodiscard]] bool send_fed();

  std::mutex mutex_;
  std::atomic<bool> active_{false};
  std::atomic<bool> paused_{false};          // collectives
  std::atomic<std::int64_t> iteration_{-1};  // the one that is open and wanted
  std::atomic<int> comm_{-1};                // what is wanted of collectives; -1: not yet looked up
  Settings settings_;
  std::unique_ptr<RingProducer> ring_;
  const DeviceOps* device_ops_ = nullptr;
  bool said_no_driver_ = false;
  std::unique_ptr<DeviceCapture> device_;  // from the first tensor on a device; before the ring
  std::unique_ptr<Feed> feed_;             // the pack of a replay
  std::uint64_t fed_ = 0;                  // activations and their gradients that came from it
  bool inert_ = false;
  RingProducer* parents_ring_ = nullptr;  // in a forked child: its memory is not mapped here
  bool wanted_ = true;                    // the current iteration is one of those to be captured
  bool open_iteration_ = false;           // between begin and end of a wanted iteration
  std::int64_t last_iteration_ = -1;      // the latest that was begun
  std::int32_t microbatch_ = -1;          // what TTRACE_CURRENT means
  std::vector<MeshAxis> axes_;            // that ttrace_axis told
  std::vector<RecordedTensor> recorded_;  // of the current segment
  std::array<std::uint64_t, kPhaseCount> estimate_{};  // bytes by phase

  std::mutex error_mutex_;  // so that an error can be read while another thread waits for room
  std::string error_;
};

}  // namespace ttrace
