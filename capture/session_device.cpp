// SPDX-License-Identifier: Apache-2.0
// The part of the session that records tensors on devices: see device_capture.hpp.
#include <cerrno>
#include <utility>

#include "capture/device_ops.hpp"
#include "capture/session.hpp"

namespace ttrace {

// 0, and place.lane when the bytes are on a device; else what ttrace_record returns.
int Session::find_device(const ttrace_tensor& tensor, const CheckedTensor& checked,
                         DeviceCapture::Place& place) {
  const bool has_bytes = tensor.alias_of < 0 && checked.bytes != 0 && !settings_.estimate;
  if (tensor.device == TTRACE_HOST || !has_bytes) return 0;
  const std::string where = std::string(checked.module) + "/" + std::string(checked.slot);
  const bool surely = tensor.device == TTRACE_DEVICE;
  if (device_ops_ == nullptr) {
    std::string why;
    device_ops_ = device_ops(surely, why);
    if (device_ops_ == nullptr && surely) return fail(ENODEV, where, "is on a device: " + why);
    if (device_ops_ == nullptr)
      return tensor.stream == nullptr || say_no_driver(where) ? 0 : disarm();
  }
  if (!surely && !follows_a_stream(tensor)) return 0;
  if (device_ == nullptr) device_ = std::make_unique<DeviceCapture>(*ring_, *device_ops_);
  place = device_->place_of(tensor.data, tensor.stream);
  if (!place.problem.empty()) return fail(EIO, where, place.problem);
  if (place.capturing) {
    const bool sent = send_note("not recorded", where,
                                "its stream is being captured into a CUDA graph, whose runs call "
                                "no ttrace_record",
                                0);
    return sent ? -ENOTCONN : disarm();
  }
  if (const std::string remark = device_->take_remark(); !remark.empty()) {
    if (!send_note("slow copies", "device", remark, 0)) return disarm();
  }
  return 0;
}

// Once: who names a stream expects that the copy follows it.
bool Session::say_no_driver(const std::string& where) {
  if (std::exchange(said_no_driver_, true)) return true;
  return send_note("taken for host memory", where,
                   "it may be on a device, but the program has loaded no CUDA driver: this and "
                   "others like it are recorded at once, not in the order of their streams",
                   0);
}

// Memory that the driver knows is written by what its stream runs, pinned memory of the host only
// if a stream is named: else it is as likely the host's own.
bool Session::follows_a_stream(const ttrace_tensor& tensor) const {
  MemoryKind kind = kUnknownMemory;
  if (device_ops_->memory_kind(tensor.data, &kind) != 0) return false;
  return kind == kDeviceMemory || (kind == kPinnedMemory && tensor.stream != nullptr);
}

bool Session::release_ring(std::chrono::milliseconds patience) {
  if (device_ != nullptr && !device_->stop(patience)) {
    // The device may yet write into the ring: both stay until the process ends.
    (void)device_.release();
    (void)ring_.release();
    return false;
  }
  device_.reset();
  ring_.reset();
  return true;
}

}  // namespace ttrace
