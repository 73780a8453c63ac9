// SPDX-License-Identifier: Apache-2.0
// See tile_pipeline.hpp.
#include "diff/tile_pipeline.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

namespace ttrace {
namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + kLoadBytes - 1) / kLoadBytes * kLoadBytes;
}

// Whole blocks, so that tiles end where they would without slots.
std::uint64_t most_elements(std::size_t size) {
  const std::size_t room = (kSlotBytes - kSlotRuns * sizeof(PackedRun) - 2 * kLoadBytes) / 2;
  return room / size / kBlockElements * kBlockElements;
}

// One call of measure(): fills slots in turn and adds up their records in the same order.
class Transfer {
 public:
  Transfer(TileDevice& device, DType type, double scale, std::uint64_t elements, Metrics& total)
      : device_(device), size_(size_of(type)), left_(elements), total_(total) {
    contents_.type = type;
    contents_.scale = scale;
  }

  void add(const RunPair& run) {
    for (std::uint64_t done = 0; done < run.count;) {
      if (contents_.count == 0) open();
      const std::uint64_t count = std::min(run.count - done, planned_ - contents_.count);
      pack(run, done, count);
      done += count;
      if (contents_.count == planned_ || runs_.size() == kSlotRuns) send();
    }
  }

  void finish() {
    if (contents_.count > 0) send();
    for (unsigned i = 0; i < kSlots; ++i) {
      collect();
      next_ = (next_ + 1) % kSlots;
    }
  }

 private:
  void open() {
    collect();
    slot_ = device_.slot(next_);
    planned_ = std::min(left_, most_elements(size_));
    contents_.candidate_at = round_up(planned_ * size_);
    contents_.runs_at = contents_.candidate_at + round_up(planned_ * size_);
    runs_.clear();
  }

  void pack(const RunPair& run, std::uint64_t done, std::uint64_t count) {
    std::byte* to = slot_ + contents_.count * size_;
    std::memcpy(to, run.reference + done * size_, count * size_);
    std::memcpy(to + contents_.candidate_at, run.candidate + done * size_, count * size_);
    runs_.push_back({contents_.count, run.first + done});
    contents_.count += count;
  }

  void send() {
    contents_.run_count = runs_.size();
    std::memcpy(slot_ + contents_.runs_at, runs_.data(), runs_.size() * sizeof(PackedRun));
    device_.start(next_, contents_);
    busy_[next_] = true;
    left_ -= contents_.count;
    contents_.count = 0;
    next_ = (next_ + 1) % kSlots;
  }

  // What the slot that comes next was sent with before.
  void collect() {
    if (!std::exchange(busy_[next_], false)) return;
    for (const TileRecord& record : device_.wait(next_)) add_record(total_, record);
  }

  TileDevice& device_;
  std::size_t size_;
  std::uint64_t left_;  // elements that were not sent
  Metrics& total_;
  SlotContents contents_;
  std::vector<PackedRun> runs_;
  std::array<bool, kSlots> busy_{};
  std::byte* slot_ = nullptr;
  std::uint64_t planned_ = 0;
  unsigned next_ = 0;
};

class TileBackend final : public Backend {
 public:
  explicit TileBackend(std::unique_ptr<TileDevice> device) : device_(std::move(device)) {}
  [[nodiscard]] std::string_view name() const override { return device_->name(); }

  void measure(DType type, double scale, std::span<const RunPair> runs,
               Metrics& total) const override {
    const std::lock_guard lock(mutex_);
    std::uint64_t elements = 0;
    for (const RunPair& run : runs) elements += run.count;
    Transfer transfer(*device_, type, scale, elements, total);
    for (const RunPair& run : runs) transfer.add(run);
    transfer.finish();
  }

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<TileDevice> device_;
};

}  // namespace

std::unique_ptr<Backend> make_tile_backend(std::unique_ptr<TileDevice> device) {
  return std::make_unique<TileBackend>(std::move(device));
}

}  // namespace ttrace
