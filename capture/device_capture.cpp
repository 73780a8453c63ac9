// SPDX-License-Identifier: Apache-2.0
// See device_capture.hpp.
#include "capture/device_capture.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "libttrace/core/message.hpp"

namespace ttrace {
namespace {

// A context's staging memory is as large as the ring, but not larger than this.
constexpr std::size_t kMostStaging = std::size_t{256} << 20;
// So that reading the first bytes of a large tensor does not wait for its last ones.
constexpr std::size_t kMostPiece = std::size_t{16} << 20;

class Entered {
 public:
  Entered(const DeviceOps& ops, void* context) : ops_(ops), error_(ops.enter(context, &mode_)) {}
  ~Entered() {
    if (error_ == 0) ops_.leave(mode_);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  [[nodiscard]] int error() const { return error_; }

 private:
  const DeviceOps& ops_;
  int mode_ = 0;
  int error_;
};

std::string words(const DeviceOps& ops, const char* what, int error) {
  return std::string(what) + " (error " + std::to_string(error) + ", " + ops.explain(error) + ")";
}

}  // namespace

DeviceCapture::DeviceCapture(RingProducer& ring, const DeviceOps& ops)
    : ring_(ring), ops_(ops), completion_(ring, ops) {}

DeviceCapture::~DeviceCapture() {
  for (const auto& lane : lanes_) {
    const Entered entered(ops_, lane->context());
    if (entered.error() != 0) continue;  // the context is gone, and all in it
    if (std::exchange(pinned_, false)) ops_.unpin(ring_.memory().data());
    lane->destroy();
  }
}

DeviceCapture::Place DeviceCapture::place_of(const void* data, void* stream) {
  Place place;
  place.stream = stream;
  void* context = nullptr;
  if (const int error = ops_.context_of(stream, data, &context); error != 0) {
    place.problem = words(ops_, "its stream belongs to no context", error);
    return place;
  }
  const Entered entered(ops_, context);
  int yes = 0;
  int error = entered.error();
  if (error == 0) error = ops_.capturing(stream, &yes);
  place.capturing = yes != 0;
  if (error == 0 && !place.capturing) {
    place.lane = &lane_of(context);
    error = place.lane->error();
  }
  if (error != 0) place.problem = words(ops_, "its device cannot be used", error);
  return place;
}

// With its context current.
DeviceLane& DeviceCapture::lane_of(void* context) {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [context](const auto& lane) {
    return lane->context() == context;
  });
  if (found != lanes_.end()) return **found;
  if (lanes_.empty()) pin_ring();
  const std::size_t wanted = std::min(ring_.memory().size(), kMostStaging);
  lanes_.push_back(std::make_unique<DeviceLane>(ops_, context, wanted));
  DeviceLane& lane = *lanes_.back();
  if (lane.error() == 0 && lane.staging_bytes() < wanted) {
    remark_ = "the device has " + std::to_string(lane.staging_bytes() >> 10) +
              " KiB left for staging instead of " + std::to_string(wanted >> 10) +
              (lane.staging_bytes() == 0 ? ": its streams wait for copies to the host"
                                         : ": its streams may wait for copies to the host");
  }
  return lane;
}

void DeviceCapture::pin_ring() {
  const std::span<std::byte> memory = ring_.memory();
  const int error = ops_.pin(memory.data(), memory.size());
  pinned_ = error == 0;
  if (!pinned_)
    remark_ = words(ops_, "the ring cannot be pinned: ttrace_record waits for copies", error);
}

std::string DeviceCapture::take_remark() { return std::exchange(remark_, {}); }

bool DeviceCapture::send(Place& place, std::span<const std::byte> bytes) {
  const Entered entered(ops_, place.lane->context());
  int error = entered.error();
  const std::size_t most = largest_piece(*place.lane);
  while (!bytes.empty()) {
    const std::span<std::byte> to = ring_.reserve(std::min(bytes.size(), most));
    if (to.empty()) return false;
    LateBytes late;
    late.error = error;
    if (error == 0) late = place.lane->copy(to, bytes.data(), place.stream);
    error = late.error;  // then the rest is not even begun
    completion_.add(late);
    bytes = bytes.subspan(to.size());
  }
  if (error != 0) place.problem = words(ops_, "the copy from the device failed", error);
  return send_verdict();
}

std::size_t DeviceCapture::largest_piece(const DeviceLane& lane) const {
  const std::size_t staging = lane.staging_bytes();
  const std::size_t most = std::min(kMostPiece, ring_.memory().size() / 4);
  return staging == 0 ? most : std::min(most, staging / 4);
}

bool DeviceCapture::send_verdict() {
  for (std::size_t at = 0; at < sizeof(Verdict);) {
    LateBytes late;
    late.verdict = ring_.reserve(sizeof(Verdict) - at);
    if (late.verdict.empty()) return false;
    late.verdict_at = at;
    completion_.add(late);
    at += late.verdict.size();
  }
  return true;
}

bool DeviceCapture::stop(std::chrono::milliseconds patience) { return completion_.stop(patience); }

}  // namespace ttrace
