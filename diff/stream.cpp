// SPDX-License-Identifier: Apache-2.0
// See stream.hpp. A part is one source of the candidate against one source of the reference; its
// runs are collected into tiles, a tile is measured and its pages are released. Tiles end where
// blocks end, so that nothing depends on where.
#include "diff/stream.hpp"

#include <algorithm>

#include "diff/convert.hpp"
#include "diff/parts.hpp"
#include "diff/runs.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kTilePages = (std::uint64_t{4} << 20) / kPage;  // both sides together
constexpr std::size_t kTileRuns = 65536;
// Elements that are converted or added up lie in memory: 4 blocks of at most 8 bytes a side.
constexpr std::uint64_t kScratchElements = 4 * kBlockElements;

// The mapped bytes of one shard, and which of its pages the present tile has touched.
class MappedShard {
 public:
  explicit MappedShard(const Shard& shard)
      : segment_(shard.segment),
        bytes_(shard.segment->bytes(*shard.record)),
        type_(shard.record->dtype),
        size_(size_of(shard.record->dtype)) {}

  [[nodiscard]] DType type() const { return type_; }
  [[nodiscard]] const std::byte* at(std::uint64_t element) const {
    return bytes_.data() + element * size_;
  }
  // Pages that the run touches and the one before did not.
  std::uint64_t touch(std::uint64_t element, std::uint64_t count) {
    const std::uint64_t begin = element * size_;
    const std::uint64_t end = begin + count * size_;
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, end);
    const std::uint64_t last = (end - 1) / kPage;
    const std::uint64_t pages = last - begin / kPage + (begin / kPage == last_page_ ? 0 : 1);
    last_page_ = last;
    return pages;
  }
  void release() {
    if (begin_ < end_) segment_->release(bytes_.subspan(begin_, end_ - begin_));
    begin_ = kNoIndex;
    end_ = 0;
    last_page_ = kNoIndex;
  }

 private:
  const SegmentReader* segment_;
  std::span<const std::byte> bytes_;
  DType type_;
  std::uint64_t size_;
  std::uint64_t begin_ = kNoIndex;
  std::uint64_t end_ = 0;
  std::uint64_t last_page_ = kNoIndex;
};

std::vector<MappedShard> map_source(const Source& source) {
  std::vector<MappedShard> mapped;
  for (const PlacedShard* shard : source.shards) mapped.emplace_back(shard->shard);
  return mapped;
}

class Part {
 public:
  Part(const Source& reference, const Source& candidate, DType type, const Backend& backend,
       const MeasureOptions& options)
      : reference_(map_source(reference)),
        candidate_(map_source(candidate)),
        type_(type),
        backend_(backend),
        options_(options) {}

  // False when the sample is full.
  bool add(const Overlap& overlap) {
    for (std::uint64_t done = 0; done < overlap.count;) {
      if (options_.sample > 0 && seen_ >= options_.sample) return false;
      const std::uint64_t room = kBlockElements - elements_ % kBlockElements;
      const std::uint64_t count = std::min(room, overlap.count - done);
      note({overlap.reference + done, overlap.candidate + done, overlap.logical + done, count});
      done += count;
      if (elements_ % kBlockElements == 0 && full()) flush();
    }
    return true;
  }

  Metrics finish() {
    if (elements_ > 0) flush();
    return total_;
  }

 private:
  void note(const Overlap& run) {
    for (MappedShard& shard : reference_) pages_ += shard.touch(run.reference, run.count);
    for (MappedShard& shard : candidate_) pages_ += shard.touch(run.candidate, run.count);
    elements_ += run.count;
    seen_ += run.count;
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
  [[nodiscard]] bool direct(const std::vector<MappedShard>& side) const {
    return side.size() == 1 && side[0].type() == type_;
  }
  [[nodiscard]] bool direct() const { return direct(reference_) && direct(candidate_); }

  void flush() {
    std::vector<RunPair> pairs;
    pairs.reserve(tile_.size());
    std::uint64_t offset = 0;
    for (const Overlap& run : tile_) {
      pairs.push_back({locate(reference_, run.reference, run.count, offset, reference_scratch_),
                       locate(candidate_, run.candidate, run.count, offset, candidate_scratch_),
                       run.count, run.logical});
      offset += run.count;
    }
    backend_.measure(type_, options_.scale, pairs, total_);
    for (MappedShard& shard : reference_) shard.release();
    for (MappedShard& shard : candidate_) shard.release();
    tile_.clear();
    elements_ = pages_ = 0;
  }

  // Where a run of one side is: in the mapped file, or converted or added up at `offset` of
  // scratch.
  const std::byte* locate(const std::vector<MappedShard>& side, std::uint64_t element,
                          std::uint64_t count, std::uint64_t offset,
                          std::vector<std::byte>& scratch) {
    if (direct(side)) return side[0].at(element);
    const std::size_t size = size_of(type_);
    if (scratch.size() < elements_ * size) scratch.resize(elements_ * size);
    std::byte* out = scratch.data() + offset * size;
    if (side.size() == 1) {
      convert(side[0].type(), side[0].at(element), count, type_, out);
      return out;
    }
    sum_.assign(count, 0.0);
    for (const MappedShard& shard : side) {
      add_as_double(shard.type(), shard.at(element), count, sum_.data());
    }
    convert(DType::float64, reinterpret_cast<const std::byte*>(sum_.data()), count, type_, out);
    return out;
  }

  std::vector<MappedShard> reference_, candidate_;
  DType type_;
  const Backend& backend_;
  const MeasureOptions& options_;
  Metrics total_;
  std::vector<Overlap> tile_;
  std::uint64_t elements_ = 0;  // of the tile
  std::uint64_t pages_ = 0;
  std::uint64_t seen_ = 0;  // of the part
  std::vector<std::byte> reference_scratch_, candidate_scratch_;
  std::vector<double> sum_;
};

Metrics measure_part(const Source& reference, const Source& candidate, const Shape& shape,
                     DType type, const Backend& backend, const MeasureOptions& options) {
  std::optional<Part> part;  // maps the shards only if they overlap
  for (const Piece& right : candidate.pieces()) {
    for (const Piece& left : reference.pieces()) {
      const std::optional<Box> box = intersection(left.global, right.global);
      if (!box || volume(*box) == 0) continue;
      if (!part) part.emplace(reference, candidate, type, backend, options);
      Runs runs(box->count, view_in_shard(left, reference.first().shard.record->shape, *box),
                view_in_shard(right, candidate.first().shard.record->shape, *box),
                view_in_tensor(shape, *box));
      Overlap run;
      while (runs.next(run)) {
        if (!part->add(run)) return part->finish();
      }
    }
  }
  return part ? part->finish() : Metrics{};
}

// What equal hashes say, without reading.
Metrics equal_part(const Record& record) {
  Metrics metrics;
  metrics.count = metrics.ulp[0] = element_count(record.shape);
  metrics.sums.reference_squares = record.statistics.sum_squares;
  metrics.sums.candidate_squares = record.statistics.sum_squares;
  metrics.reference_nan = metrics.candidate_nan = record.statistics.nan_count;
  metrics.reference_inf = metrics.candidate_inf = record.statistics.inf_count;
  return metrics;
}

ShardMetrics shard_metrics(std::int32_t rank, const Metrics& metrics) {
  return {rank,          metrics.sums,    metrics.max_error,
          metrics.count, metrics.unequal, metrics.nonfinite_mismatch,
          false};
}

// The statistics of the sources: norms add up over shards, whatever their layout.
void add_norms(const std::vector<Source>& sources, double& squares, std::uint64_t& nan,
               std::uint64_t& inf, std::uint64_t& count) {
  for (const Source& source : sources) {
    const Record& record = *source.first().shard.record;
    squares += record.statistics.sum_squares;
    nan += record.statistics.nan_count;
    inf += record.statistics.inf_count;
    count += element_count(record.shape);
  }
}

bool has_sums(const std::vector<Source>& sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const Source& source) { return source.shards.size() > 1; });
}

PairMetrics compare_digests(const std::vector<Source>& reference,
                            const std::vector<Source>& candidate, RecordKind kept,
                            PairMetrics result) {
  if (kept != RecordKind::stats || has_sums(reference) || has_sums(candidate)) {
    result.evidence = Evidence::nothing;
    return result;
  }
  Metrics& total = result.total;
  std::uint64_t candidate_count = 0;
  add_norms(reference, total.sums.reference_squares, total.reference_nan, total.reference_inf,
            total.count);
  add_norms(candidate, total.sums.candidate_squares, total.candidate_nan, total.candidate_inf,
            candidate_count);
  result.evidence = Evidence::norms;
  return result;
}

}  // namespace

PairMetrics measure(const LogicalTensor& reference, const LogicalTensor& candidate,
                    const Backend& backend, const MeasureOptions& options) {
  PairMetrics result;
  const std::vector<Source> left = sources_of(reference);
  const std::vector<Source> right = sources_of(candidate);
  result.type = common_type(reference.dtype, candidate.dtype).value_or(DType::float64);
  if (has_sums(left) || has_sums(right)) result.type = sum_type(result.type);
  // A factor to take out makes equal bytes unequal values.
  const bool by_hash = options.scale == 1 && options.sample == 0;
  const auto twin_of = [&](const Source& source) {
    return std::find_if(left.begin(), left.end(), [&](const Source& other) {
      return by_hash && equal_by_hash(other, source);
    });
  };
  const RecordKind kept = std::max(kept_of(reference), kept_of(candidate));
  bool all_equal = true;
  for (const Source& source : right) all_equal = all_equal && twin_of(source) != left.end();
  if (kept != RecordKind::full && !all_equal) {
    return compare_digests(left, right, kept, std::move(result));
  }
  result.evidence = all_equal ? Evidence::hash : Evidence::read;

  const auto against_reference = [&](const Source& source) {
    if (twin_of(source) != left.end()) return equal_part(*source.first().shard.record);
    Metrics metrics;
    for (const Source& other : left) {
      merge(metrics, measure_part(other, source, reference.shape, result.type, backend, options));
    }
    return metrics;
  };
  for (const Source& source : right) {
    const Metrics metrics = against_reference(source);
    merge(result.total, metrics);
    result.shards.push_back(shard_metrics(source.first().shard.rank, metrics));
  }
  if (kept != RecordKind::full || options.sample > 0) return result;
  for (const Source& copy : odd_copies_of(candidate)) {
    result.shards.push_back(shard_metrics(copy.first().shard.rank, against_reference(copy)));
    result.shards.back().odd_copy = true;
  }
  return result;
}

}  // namespace ttrace
