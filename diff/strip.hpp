// SPDX-License-Identifier: Apache-2.0
// Strips: stretches of a few hundred pairs of floats on which the CPU backend applies the functor
// of metrics.hpp with vectors. The same operations on the same lanes, so the bits are those of the
// functor applied one by one. The loops are compiled once for each instruction set
// (strip_loops.cpp); all give the same bits. Pairs of zeros add nothing to any sum, so that a strip
// is filled up with them: a lane starts at +0, and what is added to it never makes it -0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diff/metrics.hpp"

namespace ttrace {

inline constexpr std::size_t kStrip = 512;  // pairs at most: 4 KiB of doubles, in the first cache
inline constexpr std::size_t kStripStep = 64;  // it holds a multiple: bytes of the widest register

// The sums of a block by lane.
struct LaneSums {
  alignas(64) double error_squares[kLanes] = {};
  alignas(64) double reference_squares[kLanes] = {};
  alignas(64) double candidate_squares[kLanes] = {};
  alignas(64) double error_products[kLanes] = {};
  alignas(64) double errors[kLanes] = {};

  [[nodiscard]] Sums take(std::size_t lane) const {
    return {error_squares[lane], reference_squares[lane], candidate_squares[lane],
            error_products[lane], errors[lane]};
  }
  void put(std::size_t lane, const Sums& sums) {
    error_squares[lane] = sums.error_squares;
    reference_squares[lane] = sums.reference_squares;
    candidate_squares[lane] = sums.candidate_squares;
    error_products[lane] = sums.error_products;
    errors[lane] = sums.errors;
  }
};

// Real is float for types of 32 bits or fewer, and double for float64 and for scaled candidates.
// The first pair adds to lane 0.
template <class Real>
struct Strip {
  const Real* reference = nullptr;
  const Real* candidate = nullptr;
  std::size_t count = 0;
  bool equal = false;        // known to be, bit by bit
  std::uint64_t origin = 0;  // flat index of the first pair; wraps where zeros were put before it
  std::uint64_t lowest = 0;  // flat index of the first that is none of those zeros
  int mantissa = 0;          // of the stored type's Grid
  int min_exponent = 0;
};

// What was taken out of a strip: pairs with a NaN or an Inf.
struct Nonfinite {
  std::uint64_t pairs = 0;
  std::uint64_t reference_nan = 0, reference_inf = 0, candidate_nan = 0, candidate_inf = 0;
  std::uint64_t mismatch = 0;
  std::uint64_t first_mismatch = kNoIndex;  // flat index
};

struct StripLoops {
  const char* target;  // the instruction set: AVX3 (AVX-512), AVX2, SSE4, NEON
  // 16- and 8-bit floats to float; `count` is a multiple of kStripStep.
  void (*widen)(DType type, const std::byte* from, std::size_t count, float* into);
  // Adds a strip to the sums and all but the number of elements to `total`. False, and nothing is
  // added, when a square or its sum is not finite.
  bool (*add_floats)(const Strip<float>& strip, LaneSums& sums, Metrics& total);
  bool (*add_doubles)(const Strip<double>& strip, LaneSums& sums, Metrics& total);
  // Copies the strip with pairs of zeros where a side is NaN or Inf.
  Nonfinite (*clean_floats)(const Strip<float>& strip, float* reference, float* candidate);
  Nonfinite (*clean_doubles)(const Strip<double>& strip, double* reference, double* candidate);
};

// Those that this processor can run, the fastest first. None on one older than SSE4.
[[nodiscard]] std::span<const StripLoops* const> strip_loops();

}  // namespace ttrace
