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
  const std::size_t table = (kSlotRuns + kBlockElements) * sizeof(PackedRun);
  const std::size_t room = (kSlotBytes - table - 2 * kLoadBytes) / 2;
  return room / size / kBlockElements * kBlockElements;
}

// One call of measure_blocks(): fills slots in turn and takes their records in the same order.
class Transfer {
 public:
  Transfer(TileDevice& device, DType type, double scale, std::uint64_t elements, Metrics& counts,
           std::vector<Sums>& blocks)
      : device_(device), size_(size_of(type)), left_(elements), counts_(counts), blocks_(blocks) {
    contents_.type = type;
    contents_.scale = scale;
  }

  void add(const RunPair& run) {
    for (std::uint64_t done = 0; done < run.count;) {
      if (contents_.count == 0) open();
      const std::uint64_t room = planned_ - contents_.count;
      const std::uint64_t block = kBlockElements - contents_.count % kBlockElements;
      const bool many = runs_.size() >= kSlotRuns;  // then up to the end of the block only
      const std::uint64_t count = std::min(run.count - done, many ? std::min(room, block) : room);
      pack(run, done, count);
      done += count;
      if (contents_.count == planned_ || at_last_run()) send();
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
  // The table is full: the slot ends with the block, as a tile is a block.
  [[nodiscard]] bool at_last_run() const {
    return runs_.size() >= kSlotRuns && contents_.count % kBlockElements == 0;
  }

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
    for (const TileRecord& record : device_.wait(next_)) {
      const Metrics tile = metrics_of(record);
      merge_counts(counts_, tile);
      blocks_.push_back(tile.sums);
    }
  }

  TileDevice& device_;
  std::size_t size_;
  std::uint64_t left_;  // elements that were not sent
  Metrics& counts_;
  std::vector<Sums>& blocks_;
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

  void measure_blocks(DType type, double scale, std::span<const RunPair> runs, Metrics& counts,
                      std::vector<Sums>& blocks) const override {
    const std::lock_guard lock(mutex_);
    std::uint64_t elements = 0;
    for (const RunPair& run : runs) elements += run.count;
    Transfer transfer(*device_, type, scale, elements, counts, blocks);
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
