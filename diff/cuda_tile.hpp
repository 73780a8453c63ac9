// SPDX-License-Identifier: Apache-2.0
// What one CUDA thread does to its share of a tile, and how shares become the record of the tile.
// It is host code as well, so that every line that decides a result also runs in tests on machines
// without a GPU; cuda_kernel.cuh only launches it.
// A thread keeps what fits into registers. Buckets are counted in memory that the threads of a tile
// share, in one column for each of 32 threads, so that neighbours never write to one place at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "diff/metrics.hpp"

namespace ttrace {

inline constexpr unsigned kTileThreads = 128;
inline constexpr unsigned kHistogramColumns = 32;
inline constexpr unsigned kHistogramSize = kUlpBuckets * kHistogramColumns;
inline constexpr unsigned kLoadBytes = 16;  // of each side at a time

// Runs lie packed one behind the other; a run begins at `begin` of the packed elements and its
// first element has flat index `first` in the logical tensor.
struct PackedRun {
  std::uint64_t begin = 0;
  std::uint64_t first = 0;
};

// bool's bytes are compared as they are: a stray 2 must not be undefined behaviour.
template <class T>
using TileStorage = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
struct PackedPairs {
  const T* reference = nullptr;
  const T* candidate = nullptr;
  std::uint64_t count = 0;
  const PackedRun* runs = nullptr;  // ascending by begin; the first begins at 0
  std::uint64_t run_count = 0;
  double scale = 1;

  // Whether both sides can be loaded kLoadBytes at a time.
  [[nodiscard]] bool aligned() const {
    return (reinterpret_cast<std::uintptr_t>(reference) |
            reinterpret_cast<std::uintptr_t>(candidate)) %
               kLoadBytes ==
           0;
  }
};

// ---- of a thread ----

// As in Metrics, of at most one tile.
struct Share {
  Sums sums;
  double max_error = 0;
  double max_relative = 0;
  std::uint64_t first_unequal = kNoIndex;
  std::uint64_t worst = kNoIndex;
  std::uint32_t count = 0;
  std::uint32_t equal = 0;  // bucket 0
  std::uint32_t unequal = 0;
  std::uint32_t zero_reference = 0;
  std::uint32_t reference_nan = 0;
  std::uint32_t reference_inf = 0;
  std::uint32_t candidate_nan = 0;
  std::uint32_t candidate_inf = 0;
  std::uint32_t nonfinite_mismatch = 0;
};

struct ShareCounts : Share {
  std::uint32_t* column = nullptr;  // bucket b is kHistogramColumns * b further on
};

TTRACE_HD inline void count_bucket(ShareCounts& counts, int bucket) {
  if (bucket == 0) {
    ++counts.equal;
    return;
  }
  std::uint32_t* place = counts.column + kHistogramColumns * static_cast<unsigned>(bucket);
#ifdef __CUDA_ARCH__
  atomicAdd(place, 1u);
#else
  ++*place;
#endif
}

TTRACE_HD inline Share merged(const Share& left, const Share& right) {
  Share both = left;
  add(both.sums, right.sums);
  merge_notes(both, right);
  both.equal += right.equal;
  return both;
}

// The run of the packed elements that was asked for last: neighbours mostly lie in the same.
class RunCursor {
 public:
  TTRACE_HD RunCursor(const PackedRun* runs, std::uint64_t count) : runs_(runs), count_(count) {}

  // The flat index of the element at `position`.
  TTRACE_HD std::uint64_t index_of(std::uint64_t position) {
    if (position < begin_ || position >= end_) seek(position);
    return first_ + (position - begin_);
  }

 private:
  // The last run that begins at or before `position`.
  TTRACE_HD void seek(std::uint64_t position) {
    std::uint64_t low = 0;
    std::uint64_t high = count_;
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (runs_[middle].begin <= position) {
        low = middle;
      } else {
        high = middle;
      }
    }
    begin_ = runs_[low].begin;
    first_ = runs_[low].first;
    end_ = low + 1 < count_ ? runs_[low + 1].begin : kNoIndex;
  }

  const PackedRun* runs_;
  std::uint64_t count_;
  std::uint64_t begin_ = 1, end_ = 0, first_ = 0;  // empty: nothing was asked for yet
};

template <class T>
struct Loaded {
  static constexpr unsigned kCount = kLoadBytes / sizeof(T);
  T values[kCount];
};

template <class T>
TTRACE_HD inline Loaded<T> load_aligned(const T* from) {
  Loaded<T> loaded;
#ifdef __CUDA_ARCH__
  const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));  // read once, so past the cache
  memcpy(&loaded, &bits, sizeof bits);
#else
  std::memcpy(&loaded, from, sizeof loaded);
#endif
  return loaded;
}

// Tile `tile` is elements [tile, tile + 1) * kBlockElements. Thread t takes loads t, t + threads,
// ... of kLoadBytes, and of what is left after them elements t, t + threads, ...
template <class T>
TTRACE_HD inline void measure_share(const PackedPairs<T>& pairs, bool aligned, std::uint64_t tile,
                                    unsigned thread, unsigned threads, ShareCounts& mine) {
  const Accumulate<T> accumulate{pairs.scale};
  RunCursor cursor(pairs.runs, pairs.run_count);
  const std::uint64_t begin = tile * kBlockElements;
  const std::uint64_t left = pairs.count - begin;
  const std::uint64_t end = begin + (left < kBlockElements ? left : kBlockElements);
  constexpr unsigned kAtOnce = Loaded<T>::kCount;
  const std::uint64_t loads = aligned ? (end - begin) / kAtOnce : 0;
  for (std::uint64_t load = thread; load < loads; load += threads) {
    const std::uint64_t at = begin + load * kAtOnce;
    const Loaded<T> reference = load_aligned(pairs.reference + at);
    const Loaded<T> candidate = load_aligned(pairs.candidate + at);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (unsigned i = 0; i < kAtOnce; ++i) {
      accumulate(mine.sums, mine, reference.values[i], candidate.values[i],
                 cursor.index_of(at + i));
    }
  }
  for (std::uint64_t i = begin + loads * kAtOnce + thread; i < end; i += threads) {
    accumulate(mine.sums, mine, pairs.reference[i], pairs.candidate[i], cursor.index_of(i));
  }
}

// ---- of a tile ----

struct TileRecord {
  Share share;
  std::uint32_t ulp[kUlpBuckets] = {};
};

// The count of one bucket over all columns; of `share`, which is that of all threads.
TTRACE_HD inline std::uint32_t fold_bucket(const Share& share, const std::uint32_t* histogram,
                                           unsigned bucket) {
  std::uint32_t count = bucket == 0 ? share.equal : 0;
  for (unsigned column = 0; column < kHistogramColumns; ++column) {
    count += histogram[kHistogramColumns * bucket + column];
  }
  return count;
}

inline Metrics metrics_of(const TileRecord& record) {
  Metrics tile;
  tile.sums = record.share.sums;
  merge_notes(tile, record.share);
  for (int bucket = 0; bucket < kUlpBuckets; ++bucket) tile.ulp[bucket] = record.ulp[bucket];
  return tile;
}

inline void add_record(Metrics& total, const TileRecord& record) {
  merge(total, metrics_of(record));
}

// A tile as a device measures it, thread by thread on the host.
template <class T>
TileRecord measure_tile_on_host(const PackedPairs<T>& pairs, std::uint64_t tile) {
  std::uint32_t histogram[kHistogramSize] = {};
  TileRecord record;
  for (unsigned thread = 0; thread < kTileThreads; ++thread) {
    ShareCounts mine;
    mine.column = histogram + thread % kHistogramColumns;
    measure_share(pairs, pairs.aligned(), tile, thread, kTileThreads, mine);
    record.share = merged(record.share, mine);
  }
  for (unsigned bucket = 0; bucket < unsigned{kUlpBuckets}; ++bucket) {
    record.ulp[bucket] = fold_bucket(record.share, histogram, bucket);
  }
  return record;
}

}  // namespace ttrace
