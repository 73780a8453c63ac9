// SPDX-License-Identifier: Apache-2.0
// See hdf5_numbers.hpp.
#include "diff/hdf5_numbers.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "diff/bits.hpp"
#include "diff/convert.hpp"

namespace ttrace {
namespace {

// 1 MiB a side of float32: what a thread touches stays in its caches from the comparison of bytes
// to the measuring.
constexpr std::uint64_t kTileElements = 16 * kBlockElements;

// A thread that is woken for less costs more than it does.
constexpr std::uint64_t kWorthWaking = std::uint64_t{1} << 20;

bool is_plain(const h5::NumberFormat& format, DType type) {
  return format.dtype == type && !format.big_endian && !format.is_unsigned;
}

template <class Unsigned>
void widen_unsigned(const std::byte* data, std::uint64_t count, std::byte* out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Unsigned value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    const auto wide = static_cast<std::int64_t>(value);
    std::memcpy(out + i * sizeof wide, &wide, sizeof wide);
  }
}

struct Job : NumberJob {
  explicit Job(const NumberJob& job)
      : NumberJob(job), sums((job.count + kTileElements - 1) / kTileElements) {}

  std::vector<Sums> sums;              // of each tile
  std::vector<std::uint64_t> skipped;  // tiles that are equal and whose norms are not known
  bool norms_at_once = false;  // it differs, or a second walk would read from the disk again
  bool differs = false;
  bool adding_norms = false;  // the second walk, over what was skipped
  std::uint64_t next = 0;     // tile, or index of `skipped`
  std::uint64_t left = 0;     // tiles that are not done

  [[nodiscard]] std::uint64_t tiles() const { return adding_norms ? skipped.size() : sums.size(); }
};

// What a thread reads one side through.
struct Reader {
  ReadBuffer buffer;

  NumberPiece piece(const NumberSide& side, std::uint64_t first, std::uint64_t count) {
    const std::size_t size = size_of(side.format.dtype);
    return {side.format, side.file->view(side.offset + first * size, count * size, buffer)};
  }
  static void release(const NumberSide& side, std::uint64_t first, std::uint64_t count) {
    const std::size_t size = size_of(side.format.dtype);
    side.file->release(side.offset + first * size, count * size);
  }
};

struct Readers {
  Reader reference, candidate;
};

// Requests that keep a disk busy; threads wait for it most of the time.
constexpr unsigned kDiskThreads = 8;

bool is_cached(const NumberJob& job) {
  const auto cached = [&](const NumberSide& side) {
    const std::uint64_t tile = std::min(kTileElements, job.count);
    return side.file->resident(side.offset, tile * size_of(side.format.dtype));
  };
  return cached(job.reference) && cached(job.candidate);
}

unsigned cores() {
  static const unsigned count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

}  // namespace

std::optional<DType> comparison_type(const h5::NumberFormat& reference,
                                     const h5::NumberFormat& candidate) {
  const auto too_large = [](const h5::NumberFormat& format) {
    return format.is_unsigned && format.dtype == DType::int64;
  };
  if (too_large(reference) || too_large(candidate)) return std::nullopt;
  if (!reference.is_unsigned && !candidate.is_unsigned) {
    return common_type(reference.dtype, candidate.dtype);
  }
  const bool floating = is_floating(reference.dtype) || is_floating(candidate.dtype);
  return floating ? std::nullopt : std::optional(DType::int64);
}

bool NumberComparer::equal(const NumberPiece& reference, const NumberPiece& candidate,
                           std::uint64_t count, NumberMetrics& total) const {
  const std::size_t bytes = count * size_of(reference.format.dtype);
  if (reference.format != candidate.format) return false;
  if (std::memcmp(reference.data, candidate.data, bytes) != 0) return false;
  total.total.count += count;
  total.total.ulp[0] += count;
  return true;
}

void NumberComparer::measure(const NumberPiece& reference, const NumberPiece& candidate,
                             std::span<const RunPair> runs, NumberMetrics& total) {
  std::uint64_t count = 0;
  for (const RunPair& run : runs) count += run.count;
  const std::byte* left = as_type(reference, count, reference_);
  const std::byte* right = as_type(candidate, count, candidate_);
  const std::size_t size = size_of(type_);
  std::vector<RunPair> pairs(runs.begin(), runs.end());
  std::uint64_t at = 0;
  for (RunPair& run : pairs) {
    run.reference = left + at * size;
    run.candidate = right + at * size;
    at += run.count;
  }
  const std::uint64_t before = total.total.unequal;
  backend_.measure(type_, 1, pairs, total.total);
  const std::uint64_t unequal = total.total.unequal - before;
  if (unequal < count) total.bits_only += different_bits(left, right, count, size) - unequal;
}

void NumberComparer::add_norms(const NumberPiece& both, std::uint64_t count, Metrics& total) {
  const std::byte* data = as_type(both, count, reference_);
  const RunPair run{data, data, count, 0};
  Metrics metrics;
  backend_.measure(type_, 1, {&run, 1}, metrics);
  add(total.sums, metrics.sums);
  total.reference_nan += metrics.reference_nan;
  total.reference_inf += metrics.reference_inf;
  total.candidate_nan += metrics.candidate_nan;
  total.candidate_inf += metrics.candidate_inf;
}

const std::byte* NumberComparer::as_type(const NumberPiece& piece, std::uint64_t count,
                                         std::vector<std::byte>& scratch) {
  if (is_plain(piece.format, type_)) return piece.data;
  const std::byte* data = piece.data;
  const std::size_t size = size_of(piece.format.dtype);
  if (piece.format.big_endian) {
    swapped_.resize(std::max<std::size_t>(swapped_.size(), count * size));
    swap_bytes(data, count, size, swapped_.data());
    data = swapped_.data();
  }
  scratch.resize(std::max<std::size_t>(scratch.size(), count * size_of(type_)));
  if (piece.format.is_unsigned) {
    if (size == 2) widen_unsigned<std::uint16_t>(data, count, scratch.data());
    if (size == 4) widen_unsigned<std::uint32_t>(data, count, scratch.data());
  } else if (piece.format.dtype == type_) {
    std::memcpy(scratch.data(), data, count * size);
  } else {
    convert(piece.format.dtype, data, count, type_, scratch.data());
  }
  return scratch.data();
}

class NumberCrew::Impl {
 public:
  explicit Impl(const Backend& backend) : backend_(backend) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      queue_.clear();
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(const NumberJob& job) {
    auto entry = std::make_shared<Job>(job);
    entry->left = entry->tiles();
    const bool cached = is_cached(job);
    entry->norms_at_once = !cached;
    const std::uint64_t bytes = job.count * size_of(job.type);
    bool enough = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(entry));
      waiting_ += bytes;
      enough = waiting_ >= kWorthWaking;
      if (enough) waiting_ = 0;
    }
    if (!enough) return;
    const unsigned wanted = cached ? cores() : std::max(cores(), kDiskThreads);
    while (threads_.size() + 1 < wanted) threads_.emplace_back([this] { work(); });
    changed_.notify_all();
  }

  void finish() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return active_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct Tile {
    std::shared_ptr<Job> job;
    std::uint64_t number = 0;
    bool with_norms = false;
  };

  void work() {
    Readers readers;
    std::optional<NumberComparer> comparer;
    std::optional<DType> type;
    for (std::optional<Tile> tile = take(); tile; tile = take()) {
      if (type != tile->job->type) comparer.emplace(backend_, tile->job->type);
      type = tile->job->type;
      try {
        do_tile(*tile, *comparer, readers);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        queue_.clear();
        --active_;
        changed_.notify_all();
      }
    }
  }

  // nullopt: there is no more, and there will be none.
  std::optional<Tile> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty() || (closed_ && active_ == 0) || error_; });
    if (queue_.empty() || error_) return std::nullopt;
    std::shared_ptr<Job> job = queue_.front();
    const std::uint64_t at = job->next++;
    if (job->next == job->tiles()) queue_.pop_front();
    ++active_;
    return Tile{job, job->adding_norms ? job->skipped[at] : at, job->norms_at_once};
  }

  void do_tile(const Tile& tile, NumberComparer& comparer, Readers& readers) {
    const Job& job = *tile.job;
    const std::uint64_t first = tile.number * kTileElements;
    const std::uint64_t count = std::min(kTileElements, job.count - first);
    NumberMetrics metrics;
    const NumberPiece reference = readers.reference.piece(job.reference, first, count);
    bool skipped = false;
    if (job.adding_norms) {
      comparer.add_norms(reference, count, metrics.total);
    } else {
      const NumberPiece candidate = readers.candidate.piece(job.candidate, first, count);
      skipped = comparer.equal(reference, candidate, count, metrics);
      if (skipped && tile.with_norms) {
        comparer.add_norms(reference, count, metrics.total);
        skipped = false;
      } else if (!skipped) {
        const RunPair run{nullptr, nullptr, count, first};
        comparer.measure(reference, candidate, {&run, 1}, metrics);
      }
      Reader::release(job.candidate, first, count);
    }
    Reader::release(job.reference, first, count);
    done(tile, metrics, skipped);
  }

  void done(const Tile& tile, const NumberMetrics& metrics, bool skipped) {
    const std::lock_guard lock(mutex_);
    Job& job = *tile.job;
    job.sums[tile.number] = metrics.total.sums;
    merge_counts(job.result->total, metrics.total);
    job.result->bits_only += metrics.bits_only;
    if (metrics.total.unequal > 0) job.differs = job.norms_at_once = true;
    if (skipped) job.skipped.push_back(tile.number);
    --active_;
    const bool more = --job.left == 0 && end_walk(tile.job);
    if (more || active_ == 0) changed_.notify_all();
  }

  // True: its norms are to be added, in a second walk.
  bool end_walk(const std::shared_ptr<Job>& job) {
    if (!job->differs) return false;
    if (!job->adding_norms && !job->skipped.empty()) {
      job->adding_norms = true;
      job->next = 0;
      job->left = job->tiles();
      queue_.push_front(job);
      return true;
    }
    for (const Sums& sums : job->sums) ttrace::add(job->result->total.sums, sums);
    return false;
  }

  const Backend& backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::uint64_t active_ = 0;   // tiles that are being compared
  std::uint64_t waiting_ = 0;  // bytes a side that were added since a thread was woken
  bool closed_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

NumberCrew::NumberCrew(const Backend& backend) : impl_(std::make_unique<Impl>(backend)) {}
NumberCrew::~NumberCrew() = default;
void NumberCrew::add(const NumberJob& job) { impl_->add(job); }
void NumberCrew::finish() { impl_->finish(); }

}  // namespace ttrace
