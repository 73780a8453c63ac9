// SPDX-License-Identifier: Apache-2.0
// Walks the runs of a part in blocks (metrics.hpp): what the loops over elements on a CPU share.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include "diff/backend.hpp"
#include "diff/strip.hpp"

namespace ttrace {

// bool's bytes are compared as they are: a stray 2 must not be undefined behaviour.
template <class T>
using Storage = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
T load_element(const std::byte* data, std::uint64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

// The block that is open: its sums by lane, and how many elements it has.
struct OpenBlock {
  LaneSums sums;
  std::uint64_t position = 0;
};

// The functor, one by one: [begin, begin + count) of the run, all within the block.
template <class T>
void add_one_by_one(const Accumulate<T>& functor, const RunPair& run, std::uint64_t begin,
                    std::uint64_t count, OpenBlock& block, Metrics& total) {
  Sums lanes[kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = block.sums.take(lane);
  for (std::uint64_t i = 0; i < count; ++i) {
    functor(lanes[(block.position + i) % kLanes], total, load_element<T>(run.reference, begin + i),
            load_element<T>(run.candidate, begin + i), run.first + begin + i);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) block.sums.put(lane, lanes[lane]);
}

// add(run, begin, count, block) for every stretch of a run within one block; appends their sums.
template <class Add>
void walk_blocks(std::span<const RunPair> runs, std::vector<Sums>& blocks, Add add) {
  OpenBlock block;
  const auto end_block = [&] {
    Sums lanes[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = block.sums.take(lane);
    blocks.push_back(fold_lanes(lanes));
    block = OpenBlock{};
  };
  for (const RunPair& run : runs) {
    for (std::uint64_t done = 0; done < run.count;) {
      const std::uint64_t count = std::min(kBlockElements - block.position, run.count - done);
      add(run, done, count, block);
      done += count;
      block.position += count;
      if (block.position == kBlockElements) end_block();
    }
  }
  if (block.position > 0) end_block();
}

}  // namespace ttrace
