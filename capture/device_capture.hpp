// SPDX-License-Identifier: Apache-2.0
// Tensors on devices, on their way to the ring: what ttrace_record needs for them. Nothing here
// waits for a device, but for room in the ring. To be used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/device_completion.hpp"
#include "capture/device_lane.hpp"
#include "capture/device_ops.hpp"
#include "libttrace/core/ring.hpp"

namespace ttrace {

class DeviceCapture {
 public:
  DeviceCapture(RingProducer& ring, const DeviceOps& ops);
  ~DeviceCapture();  // when stop() has said true
  DeviceCapture(const DeviceCapture&) = delete;
  DeviceCapture& operator=(const DeviceCapture&) = delete;

  struct Place {
    DeviceLane* lane = nullptr;
    void* stream = nullptr;
    bool capturing = false;  // the stream's work goes into a graph, and is not done now
    std::string problem;     // why nothing can be copied, "" when it can
  };
  // Where a tensor's bytes can be copied, before anything is said about it.
  [[nodiscard]] Place place_of(const void* data, void* stream);

  // Appends to the ring the tensor's bytes, as they are when what `stream` has to do now is done,
  // and the verdict on them. False: the consumer is gone for good. place.problem: a copy could not
  // be begun, and the verdict will say so.
  [[nodiscard]] bool send(Place& place, std::span<const std::byte> bytes);

  // What made copies slow, once for each reason; "" when nothing new did.
  [[nodiscard]] std::string take_remark();

  // Waits until all copies are over; false when none was for `patience`. Then the device may still
  // write into the ring, whose memory must stay, and this object with it.
  [[nodiscard]] bool stop(std::chrono::milliseconds patience);

 private:
  [[nodiscard]] DeviceLane& lane_of(void* context);
  [[nodiscard]] std::size_t largest_piece(const DeviceLane& lane) const;
  [[nodiscard]] bool send_verdict();
  void pin_ring();

  RingProducer& ring_;
  const DeviceOps& ops_;
  DeviceCompletion completion_;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
  std::string remark_;
  bool pinned_ = false;
};

}  // namespace ttrace
