// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors of any type that are hard to compare: all bit patterns, special values, sizes
// and places in memory, cut into runs. Everything follows from one number, which repeats a case.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "diff/backend.hpp"
#include "diff/cuda_tile.hpp"

namespace ttrace {

struct RandomPairs {
  DType type = DType::float32;
  double scale = 1;
  std::uint64_t count = 0;
  std::vector<std::byte> reference_memory, candidate_memory;
  std::size_t reference_offset = 0, candidate_offset = 0;  // in bytes
  std::vector<RunPair> runs;
  std::vector<std::size_t> calls;  // how many runs each call of measure() takes

  [[nodiscard]] const std::byte* reference() const {
    return reference_memory.data() + reference_offset;
  }
  [[nodiscard]] const std::byte* candidate() const {
    return candidate_memory.data() + candidate_offset;
  }
};

class PairMaker {
 public:
  explicit PairMaker(std::uint64_t seed) : random_(seed) {}

  RandomPairs make() {
    RandomPairs pairs;
    pairs.type = static_cast<DType>(below(4) == 0 ? below(kDTypeCount) : below(6));
    pairs.scale = below(6) == 0 ? one_of({0.5, 3.0, -1.0, 0.0, 1e-300, 1e300, 1.0 / 3}) : 1;
    pairs.count = size();
    size_ = size_of(pairs.type);
    floating_ = is_floating(pairs.type);
    boolean_ = pairs.type == DType::boolean;
    place(pairs.reference_memory, pairs.reference_offset, pairs.count);
    place(pairs.candidate_memory, pairs.candidate_offset, pairs.count);
    std::byte* reference = pairs.reference_memory.data() + pairs.reference_offset;
    fill_reference(reference, pairs.count);
    fill_candidate(reference, pairs.candidate_memory.data() + pairs.candidate_offset, pairs.count);
    cut(pairs);
    return pairs;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  double one_of(std::initializer_list<double> values) {
    return values.begin()[below(values.size())];
  }
  std::uint64_t size() {
    switch (below(8)) {
      case 0:
        return below(3);
      case 1:
        return kBlockElements * (1 + below(3)) + below(3) - 1;
      case 2:
        return below(4 * kBlockElements);
      case 3:
        return below(40);
      default:
        return below(1500);
    }
  }

  void place(std::vector<std::byte>& memory, std::size_t& offset, std::uint64_t count) {
    // The end is the end of an allocation, so that the sanitizers see a load past it.
    offset = below(2) == 0 ? size_ * below(20) : below(64);
    memory.resize(offset + count * size_);
  }

  void put(std::byte* data, std::uint64_t i, std::uint64_t code) {
    if (boolean_ && below(64) != 0) code &= 1;
    std::memcpy(data + i * size_, &code, size_);
  }
  std::uint64_t get(const std::byte* data, std::uint64_t i) const {
    std::uint64_t code = 0;
    std::memcpy(&code, data + i * size_, size_);
    return code;
  }

  // Codes around what is special in every format: zeros, subnormals, ones, the largest, Inf, NaN.
  std::uint64_t special() {
    const std::uint64_t sign = std::uint64_t{1} << (8 * size_ - 1);
    const std::uint64_t infinity = infinity_code();
    const std::uint64_t codes[] = {0,
                                   1,
                                   2,
                                   infinity - 1,
                                   infinity,
                                   infinity + 1,
                                   infinity + below(infinity / 8 + 1),
                                   sign - 1,
                                   infinity / 2,
                                   below(infinity / 31 + 1),
                                   infinity / 2 + below(4)};
    return codes[below(std::size(codes))] | (below(2) == 0 ? sign : 0);
  }
  [[nodiscard]] std::uint64_t infinity_code() const {
    switch (size_) {
      case 8:
        return 0x7ff0000000000000u;
      case 4:
        return 0x7f800000u;
      case 2:
        return below_half_ ? 0x7c00u : 0x7f80u;
      default:
        return 0x7cu;
    }
  }

  void fill_reference(std::byte* data, std::uint64_t count) {
    below_half_ = below(2) == 0;
    const std::uint64_t kind = below(6);
    const std::uint64_t same = special();
    const std::uint64_t spread = std::uint64_t{1} << below(8 * size_);
    const std::uint64_t rare = 1 + below(2000);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t code = 0;
      if (kind == 0) code = random_();  // any bits
      if (kind == 1) code = special();
      if (kind == 2) code = same;                                 // a constant
      if (kind == 3) code = infinity_code() / 2 + below(spread);  // ordinary numbers
      if (kind == 4) code = below(rare) == 0 ? special() : infinity_code() / 2 + below(spread);
      if (kind == 5) code = infinity_code() - 1 - below(infinity_code() / 16 + 1);  // near overflow
      if (kind > 2 && below(2) == 0) code |= std::uint64_t{1} << (8 * size_ - 1);
      put(data, i, code);
    }
  }

  void fill_candidate(const std::byte* reference, std::byte* data, std::uint64_t count) {
    if (count == 0) return;
    std::memcpy(data, reference, count * size_);
    const std::uint64_t kind = below(7);
    const std::uint64_t one = below(count);
    const std::uint64_t rare = 1 + below(3000), step = 1 + below(std::uint64_t{1} << below(24));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t code = get(reference, i);
      if (kind == 1 && i == one) put(data, i, code + step);
      if (kind == 2) put(data, i, code + below(step) - step / 2);
      if (kind == 3) put(data, i, random_());
      if (kind == 4 && below(rare) == 0) put(data, i, special());
      if (kind == 5) put(data, i, code ^ (std::uint64_t{1} << (8 * size_ - 1)));
      if (kind == 6) put(data, i, code + step);
    }
  }

  void cut(RandomPairs& pairs) {
    const std::uint64_t longest = below(3) == 0 ? 40 : (below(2) == 0 ? 3000 : 1000000);
    std::uint64_t logical = below(1000), in_tile = 0;
    pairs.calls.push_back(0);
    for (std::uint64_t at = 0; at < pairs.count;) {
      // A tile ends where a block does, and whenever chance wants it.
      const std::uint64_t to_block = kBlockElements - in_tile % kBlockElements;
      const std::uint64_t length = std::min({pairs.count - at, to_block, 1 + below(longest)});
      pairs.runs.push_back(
          {pairs.reference() + at * size_, pairs.candidate() + at * size_, length, logical});
      ++pairs.calls.back();
      at += length;
      in_tile += length;
      // Runs need not ascend in the logical tensor, but never meet.
      logical = below(3) == 0 ? logical + length : (below(1u << 30) << 24) + at;
      if (in_tile % kBlockElements == 0 && below(2) == 0 && at < pairs.count) {
        pairs.calls.push_back(0);
        in_tile = 0;
      }
    }
  }

  std::mt19937_64 random_;
  std::size_t size_ = 0;
  bool floating_ = false, boolean_ = false, below_half_ = false;
};

// The device's share of the work, thread by thread.
inline Metrics measure_as_device(const RandomPairs& pairs) {
  std::vector<std::uint64_t> reference((pairs.count * size_of(pairs.type) + 7) / 8);
  std::vector<std::uint64_t> candidate = reference;
  if (pairs.count > 0) {
    std::memcpy(reference.data(), pairs.reference(), pairs.count * size_of(pairs.type));
    std::memcpy(candidate.data(), pairs.candidate(), pairs.count * size_of(pairs.type));
  }
  std::vector<PackedRun> packed;
  std::uint64_t begin = 0;
  for (const RunPair& run : pairs.runs) {
    packed.push_back({begin, run.first});
    begin += run.count;
  }
  return visit_dtype(pairs.type, [&](auto sample) {
    using T = TileStorage<decltype(sample)>;
    const PackedPairs<T> on_device{reinterpret_cast<const T*>(reference.data()),
                                   reinterpret_cast<const T*>(candidate.data()),
                                   pairs.count,
                                   packed.data(),
                                   packed.size(),
                                   pairs.scale};
    Metrics total;
    for (std::uint64_t tile = 0; tile * kBlockElements < pairs.count; ++tile) {
      add_record(total, measure_tile_on_host(on_device, tile));
    }
    return total;
  });
}

inline Metrics measure_on(const Backend& backend, const RandomPairs& pairs) {
  Metrics total;
  std::size_t run = 0;
  for (const std::size_t runs : pairs.calls) {
    backend.measure(pairs.type, pairs.scale, std::span(pairs.runs).subspan(run, runs), total);
    run += runs;
  }
  return total;
}

}  // namespace ttrace
