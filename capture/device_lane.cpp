// SPDX-License-Identifier: Apache-2.0
// See device_lane.hpp.
#include "capture/device_lane.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kLeastStaging = std::size_t{64} << 10;  // less is not worth a second copy

}  // namespace

DeviceLane::DeviceLane(const DeviceOps& ops, void* context, std::size_t staging_bytes)
    : ops_(ops), context_(context) {
  error_ = make(staging_bytes);
}

int DeviceLane::make(std::size_t staging_bytes) {
  if (const int error = ops_.create_stream(&stream_); error != 0) return error;
  if (const int error = ops_.create_event(&staged_); error != 0) return error;
  for (std::size_t bytes = staging_bytes; bytes >= kLeastStaging; bytes /= 2) {
    if (ops_.allocate(bytes, &staging_) != 0) continue;
    staging_bytes_ = bytes;
    break;
  }
  return 0;
}

void DeviceLane::destroy() {
  for (const Mark& mark : marks_) ops_.destroy_event(mark.event);
  if (staged_ != nullptr) ops_.destroy_event(staged_);
  if (staging_ != nullptr) ops_.release(staging_);
  if (stream_ != nullptr) ops_.destroy_stream(stream_);
}

LateBytes DeviceLane::copy(std::span<std::byte> to, const std::byte* from, void* stream) {
  LateBytes late;
  late.context = context_;
  void* event = nullptr;
  late.error = error_ != 0 ? error_ : next_event(&event);
  if (late.error != 0) return late;
  late.error = begin(to, from, stream, event);
  if (late.error != 0) {
    ops_.destroy_event(event);
    return late;
  }
  late.event = event;
  late.ended = &ended_;
  marks_.push_back({begun_++, event});
  return late;
}

// The one of a copy that has ended, so that nobody asks it any more.
int DeviceLane::next_event(void** event) {
  if (marks_.empty() || !ended(marks_.front())) return ops_.create_event(event);
  *event = marks_.front().event;
  marks_.pop_front();
  return 0;
}

int DeviceLane::begin(std::span<std::byte> to, const std::byte* from, void* stream, void* event) {
  Slot slot;
  std::byte* first = to.data();
  if (staging_ != nullptr) {
    if (const int error = claim(to.size(), stream, slot); error != 0) return error;
    first = static_cast<std::byte*>(staging_) + slot.begin % staging_bytes_;
  }
  if (const int error = ops_.copy(first, from, to.size(), stream); error != 0) return error;
  const bool staged = staging_ != nullptr;
  error_ = staged ? to_host(to, first, stream, event) : ops_.record_event(event, stream);
  // From here on nobody knows any more who uses which part: the lane copies no more.
  if (error_ != 0 || !staged) return error_;
  slot.mark = {begun_, event};
  slots_.push_back(slot);
  claimed_ = slot.end;
  return 0;
}

int DeviceLane::to_host(std::span<std::byte> to, const std::byte* staged, void* stream,
                        void* event) {
  int error = ops_.record_event(staged_, stream);
  if (error == 0) error = ops_.wait_event(stream_, staged_);
  if (error == 0) error = ops_.copy(to.data(), staged, to.size(), stream_);
  return error == 0 ? ops_.record_event(event, stream_) : error;
}

int DeviceLane::claim(std::size_t bytes, void* stream, Slot& slot) {
  while (!slots_.empty() && ended(slots_.front().mark)) slots_.pop_front();
  slot.begin = claimed_;
  const std::uint64_t left = staging_bytes_ - claimed_ % staging_bytes_;
  if (left < bytes) slot.begin += left;  // one piece: the rest at the end stays unused
  slot.end = slot.begin + bytes;
  // All that was claimed a round ago, up to where this slot ends now.
  const std::uint64_t round_ago =
      slot.end > staging_bytes_ ? slot.end - staging_bytes_ : std::uint64_t{0};
  const auto after =
      std::lower_bound(slots_.begin(), slots_.end(), round_ago,
                       [](const Slot& older, std::uint64_t at) { return older.begin < at; });
  // It stays in the list: another stream that comes to the same part has to wait, too.
  return after == slots_.begin() ? 0 : ops_.wait_event(stream, std::prev(after)->mark.event);
}

}  // namespace ttrace
