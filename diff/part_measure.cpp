// SPDX-License-Identifier: Apache-2.0
// See part_measure.hpp. Pages are let go after every few MiB.
#include "diff/part_measure.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "diff/convert.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kTilePages = (std::uint64_t{4} << 20) / kPage;  // both sides together
constexpr std::size_t kTileRuns = 65536;
// Elements that are converted or added up lie in memory: 4 blocks of at most 8 bytes a side.
constexpr std::uint64_t kScratchElements = 4 * kBlockElements;

// The bytes of one shard that the present tile touches.
class ShardBytes {
 public:
  ShardBytes(const Shard& shard, bool read_once)
      : segment_(shard.segment),
        record_(shard.record),
        size_(size_of(shard.record->dtype)),
        read_once_(read_once) {}

  [[nodiscard]] DType type() const { return record_->dtype; }
  // After open(). Of a run that was touched.
  [[nodiscard]] const std::byte* at(std::uint64_t element) const {
    return data_ + (element * size_ - first_);
  }
  // Pages that the run touches and the one before did not.
  std::uint64_t touch(std::uint64_t element, std::uint64_t count) {
    const std::uint64_t begin = element * size_;
    const std::uint64_t end = begin + count * size_;
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, end);
    touched_ += end - begin;
    const std::uint64_t last = (end - 1) / kPage;
    const std::uint64_t pages = last - begin / kPage + (begin / kPage == last_page_ ? 0 : 1);
    last_page_ = last;
    return pages;
  }
  void open() {
    viewed_ = read_once_ && 2 * touched_ >= end_ - begin_;
    first_ = viewed_ ? begin_ : 0;
    data_ = viewed_ ? segment_->view(*record_, begin_, end_ - begin_, buffer_)
                    : segment_->bytes(*record_).data();
  }
  void release() {
    if (viewed_) segment_->release(*record_, begin_, end_ - begin_);
    if (!viewed_) segment_->release({data_ + begin_, end_ - begin_});
    begin_ = kNoIndex;
    end_ = touched_ = 0;
    last_page_ = kNoIndex;
  }

 private:
  const SegmentReader* segment_;
  const Record* record_;
  std::uint64_t size_;
  bool read_once_;
  ReadBuffer buffer_;
  bool viewed_ = false;
  const std::byte* data_ = nullptr;
  std::uint64_t first_ = 0;  // byte of the shard that `data_` begins with
  std::uint64_t begin_ = kNoIndex;
  std::uint64_t end_ = 0;
  std::uint64_t touched_ = 0;
  std::uint64_t last_page_ = kNoIndex;
};

std::vector<ShardBytes> shards_of(const Source& source, bool read_once) {
  std::vector<ShardBytes> shards;
  for (const PlacedShard* shard : source.shards) shards.emplace_back(shard->shard, read_once);
  return shards;
}

class StretchWalk {
 public:
  StretchWalk(const Source& reference, const Source& candidate, const Arithmetic& how)
      : reference_(shards_of(reference, how.read_once)),
        candidate_(shards_of(candidate, how.read_once)),
        how_(how) {}

  void add(const Overlap& overlap) {
    for (std::uint64_t done = 0; done < overlap.count;) {
      const std::uint64_t room = kBlockElements - elements_ % kBlockElements;
      const std::uint64_t count = std::min(room, overlap.count - done);
      note({overlap.reference + done, overlap.candidate + done, overlap.logical + done, count});
      done += count;
      if (elements_ % kBlockElements == 0 && full()) flush();
    }
  }

  StretchMetrics finish() {
    if (elements_ > 0) flush();
    return std::move(result_);
  }

 private:
  void note(const Overlap& run) {
    for (ShardBytes& shard : reference_) pages_ += shard.touch(run.reference, run.count);
    for (ShardBytes& shard : candidate_) pages_ += shard.touch(run.candidate, run.count);
    elements_ += run.count;
    if (!tile_.empty()) {
      Overlap& last = tile_.back();
      if (last.reference + last.count == run.reference &&
          last.candidate + last.count == run.candidate &&
          last.logical + last.count == run.logical) {
        last.count += run.count;
        return;
      }
    }
    tile_.push_back(run);
  }

  [[nodiscard]] bool full() const {
    return pages_ >= kTilePages || tile_.size() >= kTileRuns ||
           (!direct() && elements_ >= kScratchElements);
  }
  [[nodiscard]] bool direct(const std::vector<ShardBytes>& side) const {
    return side.size() == 1 && side[0].type() == how_.type;
  }
  [[nodiscard]] bool direct() const { return direct(reference_) && direct(candidate_); }

  void flush() {
    for (ShardBytes& shard : reference_) shard.open();
    for (ShardBytes& shard : candidate_) shard.open();
    std::vector<RunPair> pairs;
    pairs.reserve(tile_.size());
    std::uint64_t offset = 0;
    for (const Overlap& run : tile_) {
      pairs.push_back({locate(reference_, run.reference, run.count, offset, reference_scratch_),
                       locate(candidate_, run.candidate, run.count, offset, candidate_scratch_),
                       run.count, run.logical});
      offset += run.count;
    }
    how_.backend.measure_blocks(how_.type, how_.scale, pairs, result_.counts, result_.blocks);
    for (ShardBytes& shard : reference_) shard.release();
    for (ShardBytes& shard : candidate_) shard.release();
    tile_.clear();
    elements_ = pages_ = 0;
  }

  // Where a run of one side is: in the mapped file, or converted or added up at `offset` of
  // scratch.
  const std::byte* locate(const std::vector<ShardBytes>& side, std::uint64_t element,
                          std::uint64_t count, std::uint64_t offset,
                          std::vector<std::byte>& scratch) {
    if (direct(side)) return side[0].at(element);
    const std::size_t size = size_of(how_.type);
    if (scratch.size() < elements_ * size) scratch.resize(elements_ * size);
    std::byte* out = scratch.data() + offset * size;
    if (side.size() == 1) {
      convert(side[0].type(), side[0].at(element), count, how_.type, out);
      return out;
    }
    sum_.assign(count, 0.0);
    for (const ShardBytes& shard : side) {
      add_as_double(shard.type(), shard.at(element), count, sum_.data());
    }
    convert(DType::float64, reinterpret_cast<const std::byte*>(sum_.data()), count, how_.type, out);
    return out;
  }

  std::vector<ShardBytes> reference_, candidate_;
  const Arithmetic& how_;
  StretchMetrics result_;
  std::vector<Overlap> tile_;
  std::uint64_t elements_ = 0;  // of the tile
  std::uint64_t pages_ = 0;
  std::vector<std::byte> reference_scratch_, candidate_scratch_;
  std::vector<double> sum_;
};

}  // namespace

Part::Part(const Source& reference, const Source& candidate, const Shape& shape)
    : reference_(&reference), candidate_(&candidate) {
  for (const Piece& right : candidate.pieces()) {
    for (const Piece& left : reference.pieces()) {
      const std::optional<Box> box = intersection(left.global, right.global);
      if (!box || volume(*box) == 0) continue;
      commons_.push_back(
          {Runs(box->count, view_in_shard(left, reference.first().shard.record->shape, *box),
                view_in_shard(right, candidate.first().shard.record->shape, *box),
                view_in_tensor(shape, *box)),
           elements_, volume(*box)});
      elements_ += volume(*box);
    }
  }
}

StretchMetrics Part::measure(const Stretch& stretch, const Arithmetic& how) const {
  StretchWalk walk(*reference_, *candidate_, how);
  const std::uint64_t end = stretch.first + stretch.count;
  auto common = std::upper_bound(
      commons_.begin(), commons_.end(), stretch.first,
      [](std::uint64_t element, const Common& later) { return element < later.first; });
  for (--common; common != commons_.end() && common->first < end; ++common) {
    Runs runs = common->runs;
    const std::uint64_t begin = std::max(stretch.first, common->first) - common->first;
    std::uint64_t left = std::min(end - common->first, common->count) - begin;
    std::uint64_t skipped = begin % runs.length();
    runs.seek(begin / runs.length());
    for (Overlap run; left > 0 && runs.next(run); skipped = 0) {
      const std::uint64_t count = std::min(left, run.count - skipped);
      walk.add({run.reference + skipped, run.candidate + skipped, run.logical + skipped, count});
      left -= count;
    }
  }
  return walk.finish();
}

}  // namespace ttrace
