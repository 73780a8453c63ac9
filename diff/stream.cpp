// SPDX-License-Identifier: Apache-2.0
// See stream.hpp. A part is one source of the candidate against one source of the reference; its
// walk is cut into stretches of whole blocks, so that nothing depends on who measures them.
#include "diff/stream.hpp"

#include <algorithm>

#include "diff/convert.hpp"
#include "diff/part_measure.hpp"

namespace ttrace {
namespace {

// 4 MiB a side of float32: a thread takes some 300 us for it.
constexpr std::uint64_t kStretchElements = 64 * kBlockElements;

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

class Measurement::Impl {
 public:
  Impl(const LogicalTensor& reference, const LogicalTensor& candidate, const Backend& backend,
       const MeasureOptions& options)
      : reference_(reference),
        candidate_(candidate),
        left_(sources_of(reference)),
        right_(sources_of(candidate)),
        how_{common_type(reference.dtype, candidate.dtype).value_or(DType::float64), options.scale,
             backend, options.read_once},
        options_(options),
        kept_(std::max(kept_of(reference), kept_of(candidate))) {
    if (has_sums(left_) || has_sums(right_)) how_.type = sum_type(how_.type);
    result_.type = how_.type;
    plan();
  }

  [[nodiscard]] std::size_t stretches() const { return jobs_.size(); }

  void measure(std::size_t i) {
    Job& job = jobs_[i];
    job.metrics = parts_[job.part].measure(job.stretch, how_);
  }

  PairMetrics finish() {
    if (!planned_) return std::move(result_);
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Target& target = targets_[i];
      const Metrics metrics = metrics_of(target);
      if (!target.odd_copy) merge(result_.total, metrics);
      result_.shards.push_back(shard_metrics(target.source.first().shard.rank, metrics));
      result_.shards.back().odd_copy = target.odd_copy;
    }
    return std::move(result_);
  }

 private:
  // A source of the candidate against all of the reference.
  struct Target {
    Source source;
    bool odd_copy = false;
    bool equal = false;                         // by hash; else:
    std::size_t first_part = 0, last_part = 0;  // behind the last
  };
  struct Job {
    std::size_t part;
    Stretch stretch;
    StretchMetrics metrics;
  };

  void plan() {
    for (const Source& source : right_) targets_.push_back({source, false, has_twin(source), 0, 0});
    const bool all_equal = std::all_of(targets_.begin(), targets_.end(),
                                       [](const Target& target) { return target.equal; });
    if (kept_ != RecordKind::full && !all_equal) {
      result_ = compare_digests(left_, right_, kept_, std::move(result_));
      return;
    }
    planned_ = true;
    result_.evidence = all_equal ? Evidence::hash : Evidence::read;
    if (kept_ == RecordKind::full && options_.sample == 0) {
      for (const Source& copy : odd_copies_of(candidate_)) {
        targets_.push_back({copy, true, has_twin(copy), 0, 0});
      }
    }
    for (Target& target : targets_) plan_parts(target);
  }

  // A factor to take out makes equal bytes unequal values.
  [[nodiscard]] bool has_twin(const Source& source) const {
    const bool read = kept_ == RecordKind::full && !options_.trust_hash;
    if (read || options_.scale != 1 || options_.sample != 0) return false;
    return std::any_of(left_.begin(), left_.end(),
                       [&](const Source& other) { return equal_by_hash(other, source); });
  }

  void plan_parts(Target& target) {
    target.first_part = target.last_part = parts_.size();
    if (target.equal) return;
    for (const Source& other : left_) {
      Part part(other, target.source, reference_.shape);
      std::uint64_t count = part.elements();
      if (options_.sample > 0) count = std::min(count, options_.sample);
      if (count == 0) continue;
      for (std::uint64_t first = 0; first < count; first += kStretchElements) {
        jobs_.push_back({parts_.size(), {first, std::min(kStretchElements, count - first)}, {}});
      }
      parts_.push_back(std::move(part));
    }
    target.last_part = parts_.size();
  }

  // Stretches and parts add up in order.
  Metrics metrics_of(const Target& target) {
    if (target.equal) return equal_part(*target.source.first().shard.record);
    Metrics all;
    for (std::size_t part = target.first_part; part < target.last_part; ++part) {
      Metrics total;
      for (; at_ < jobs_.size() && jobs_[at_].part == part; ++at_) {
        merge_counts(total, jobs_[at_].metrics.counts);
        for (const Sums& block : jobs_[at_].metrics.blocks) add(total.sums, block);
      }
      merge(all, total);
    }
    return all;
  }

  const LogicalTensor& reference_;
  const LogicalTensor& candidate_;
  std::vector<Source> left_, right_;
  Arithmetic how_;
  MeasureOptions options_;
  RecordKind kept_;  // the least of both sides
  PairMetrics result_;
  bool planned_ = false;  // false: the result is there
  std::vector<Target> targets_;
  std::vector<Part> parts_;
  std::vector<Job> jobs_;
  std::size_t at_ = 0;  // of jobs_, when adding up
};

Measurement::Measurement(const LogicalTensor& reference, const LogicalTensor& candidate,
                         const Backend& backend, const MeasureOptions& options)
    : impl_(std::make_unique<Impl>(reference, candidate, backend, options)) {}
Measurement::~Measurement() = default;
Measurement::Measurement(Measurement&&) noexcept = default;
std::size_t Measurement::stretches() const { return impl_->stretches(); }
void Measurement::measure(std::size_t i) { impl_->measure(i); }
PairMetrics Measurement::finish() { return impl_->finish(); }

PairMetrics measure(const LogicalTensor& reference, const LogicalTensor& candidate,
                    const Backend& backend, const MeasureOptions& options) {
  Measurement measurement(reference, candidate, backend, options);
  for (std::size_t i = 0; i < measurement.stretches(); ++i) measurement.measure(i);
  return measurement.finish();
}

}  // namespace ttrace
