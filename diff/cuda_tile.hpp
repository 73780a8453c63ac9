// SPDX-License-Identifier: Apache-2.0
// What one CUDA thread does to its share of a tile. It is host code as well, so that every line
// that decides a result also runs in a test on machines without a GPU; backend_cuda.cu only
// launches it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "diff/metrics.hpp"

namespace ttrace {

inline constexpr unsigned kTileThreads = 128;

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
};

// The last run that begins at or before `position`.
TTRACE_HD inline std::uint64_t run_at(const PackedRun* runs, std::uint64_t run_count,
                                      std::uint64_t position) {
  std::uint64_t low = 0;
  std::uint64_t high = run_count;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (runs[middle].begin <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Tile `tile` is elements [tile, tile + 1) * kBlockElements; thread t takes t, t + threads, ...
template <class T>
TTRACE_HD inline Metrics measure_share(const PackedPairs<T>& pairs, std::uint64_t tile,
                                       unsigned thread, unsigned threads) {
  Metrics mine;
  const Accumulate<T> accumulate{pairs.scale};
  const std::uint64_t begin = tile * kBlockElements;
  const std::uint64_t left = pairs.count - begin;
  const std::uint64_t end = begin + (left < kBlockElements ? left : kBlockElements);
  for (std::uint64_t i = begin + thread; i < end; i += threads) {
    const PackedRun& run = pairs.runs[run_at(pairs.runs, pairs.run_count, i)];
    accumulate(mine.sums, mine, pairs.reference[i], pairs.candidate[i],
               run.first + (i - run.begin));
  }
  return mine;
}

}  // namespace ttrace
