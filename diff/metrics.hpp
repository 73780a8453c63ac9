// SPDX-License-Identifier: Apache-2.0
// The only arithmetic of the comparison: one functor, written once for the host and for the device.
// Every backend applies it to each pair of elements; they differ in how they loop, not in what they
// compute. The order of the additions is part of the contract, so that results depend neither on
// tiles nor on threads nor on the instruction set:
//   a part (one shard against one shard) is walked in runs; 16,384 consecutive elements of the walk
//   are a block; element i of a block adds to lane i % 8; lanes fold as a tree; blocks add in
//   order.
// Floats are subtracted as doubles. The difference of two 32-bit (or smaller) floats is then exact
// unless one is 2^29 times the other, so sums of signed errors and of error * reference, from which
// exact factors are read, hold the rounding of the runs and none of ours. Products are rounded,
// each by itself: the build forbids contraction.
#pragma once

#include <cstdint>
#include <type_traits>

#include "libttrace/core/dtype.hpp"

namespace ttrace {

inline constexpr std::uint64_t kNoIndex = ~std::uint64_t{0};
inline constexpr std::uint64_t kBlockElements = 16384;
inline constexpr int kLanes = 8;
// Bucket 0: equal values. Bucket k: the error is in [2^(k-1), 2^k) spacings of the type at the
// reference (bucket 1 also holds less than one, the last also holds more).
inline constexpr int kUlpBuckets = 34;

struct Sums {
  double error_squares = 0;      // (c - r)^2
  double reference_squares = 0;  // r^2
  double candidate_squares = 0;  // c^2
  double error_products = 0;     // (c - r) * r, signed
  double errors = 0;             // c - r, signed
};

// Over pairs of finite elements, but for the counts, which are over all.
struct Metrics {
  Sums sums;
  double max_error = 0;
  double max_relative = 0;           // |c - r| / |r| where r is not 0
  std::uint64_t count = 0;           // elements
  std::uint64_t unequal = 0;         // pairs of different value; NaN equals NaN
  std::uint64_t zero_reference = 0;  // r is 0 and c is not
  std::uint64_t reference_nan = 0;
  std::uint64_t reference_inf = 0;
  std::uint64_t candidate_nan = 0;
  std::uint64_t candidate_inf = 0;
  std::uint64_t nonfinite_mismatch = 0;    // NaN or Inf on one side, or not the same one
  std::uint64_t first_unequal = kNoIndex;  // lowest flat index in the logical tensor
  std::uint64_t worst = kNoIndex;          // of max_error; the lowest of equals
  std::uint64_t ulp[kUlpBuckets] = {};
};

TTRACE_HD inline void add(Sums& into, const Sums& other) {
  into.error_squares += other.error_squares;
  into.reference_squares += other.reference_squares;
  into.candidate_squares += other.candidate_squares;
  into.error_products += other.error_products;
  into.errors += other.errors;
}

TTRACE_HD inline Sums fold_lanes(const Sums* lanes) {
  Sums half[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) half[lane] = lanes[lane];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) add(half[lane], half[lane + width]);
  }
  return half[0];
}

// Everything but sums and buckets: the order of these does not matter. Of Metrics, or of what a
// device thread keeps of them (cuda_tile.hpp).
template <class Into, class From>
TTRACE_HD inline void merge_notes(Into& into, const From& other) {
  if (other.max_error > into.max_error ||
      (other.max_error == into.max_error && other.worst < into.worst)) {
    into.max_error = other.max_error;
    into.worst = other.worst;
  }
  if (other.max_relative > into.max_relative) into.max_relative = other.max_relative;
  if (other.first_unequal < into.first_unequal) into.first_unequal = other.first_unequal;
  into.count += other.count;
  into.unequal += other.unequal;
  into.zero_reference += other.zero_reference;
  into.reference_nan += other.reference_nan;
  into.reference_inf += other.reference_inf;
  into.candidate_nan += other.candidate_nan;
  into.candidate_inf += other.candidate_inf;
  into.nonfinite_mismatch += other.nonfinite_mismatch;
}

// Everything but the sums.
TTRACE_HD inline void merge_counts(Metrics& into, const Metrics& other) {
  merge_notes(into, other);
  for (int bucket = 0; bucket < kUlpBuckets; ++bucket) into.ulp[bucket] += other.ulp[bucket];
}

TTRACE_HD inline void merge(Metrics& into, const Metrics& other) {
  add(into.sums, other.sums);
  merge_counts(into, other);
}

TTRACE_HD inline bool is_finite(double value) {
  return (__builtin_bit_cast(std::uint64_t, value) >> 52 & 0x7ffu) != 0x7ffu;
}

// floor(log2 |value|) of a normal double; -1023 for 0 and subnormal ones.
TTRACE_HD inline int exponent_of(double value) {
  return static_cast<int>(__builtin_bit_cast(std::uint64_t, value) >> 52 & 0x7ffu) - 1023;
}

// What a type's grid looks like: spacing of values is 2^(max(exponent, kMinExponent) - kMantissa).
template <class T>
struct Grid;
template <>
struct Grid<double> {
  static constexpr int kMantissa = 52, kMinExponent = -1022;
};
template <>
struct Grid<float> {
  static constexpr int kMantissa = 23, kMinExponent = -126;
};
template <>
struct Grid<BFloat16> {
  static constexpr int kMantissa = 7, kMinExponent = -126;
};
template <>
struct Grid<Float16> {
  static constexpr int kMantissa = 10, kMinExponent = -14;
};
template <>
struct Grid<Float8E4M3> {
  static constexpr int kMantissa = 3, kMinExponent = -6;
};
template <>
struct Grid<Float8E5M2> {
  static constexpr int kMantissa = 2, kMinExponent = -14;
};

TTRACE_HD inline int ulp_bucket(int mantissa, int min_exponent, double reference, double error) {
  const int at = exponent_of(reference);
  const int spacing = (at > min_exponent ? at : min_exponent) - mantissa;
  // Subnormal errors, which only doubles have, are raised by a power of two.
  const bool subnormal = exponent_of(error) == -1023;
  const int size = subnormal ? exponent_of(error * 0x1p64) - 64 : exponent_of(error);
  const int bucket = size - spacing + 1;
  if (error == 0) return 0;
  return bucket < 1 ? 1 : (bucket < kUlpBuckets ? bucket : kUlpBuckets - 1);
}
template <class T>
TTRACE_HD inline int ulp_bucket(double reference, double error) {
  return ulp_bucket(Grid<T>::kMantissa, Grid<T>::kMinExponent, reference, error);
}

// One pair of finite values: what is added, in lanes, ...
TTRACE_HD inline void add_pair(Sums& lane, double reference, double candidate, double error) {
  lane.error_squares += error * error;
  lane.reference_squares += reference * reference;
  lane.candidate_squares += candidate * candidate;
  lane.error_products += error * reference;
  lane.errors += error;
}

// ... and what is noted when the two are not equal.
// Counts are Metrics, or what a device thread keeps of them (cuda_tile.hpp).
TTRACE_HD inline void count_bucket(Metrics& counts, int bucket) { ++counts.ulp[bucket]; }

template <class Counts>
TTRACE_HD inline void note_error(Counts& counts, double reference, double error, int bucket,
                                 std::uint64_t index) {
  const double size = error < 0 ? -error : error;
  const double magnitude = reference < 0 ? -reference : reference;
  ++counts.unequal;
  count_bucket(counts, bucket);
  if (index < counts.first_unequal) counts.first_unequal = index;
  if (size > counts.max_error || (size == counts.max_error && index < counts.worst)) {
    counts.max_error = size;
    counts.worst = index;
  }
  if (magnitude == 0) {
    ++counts.zero_reference;
  } else if (size >= counts.max_relative * magnitude * (1 - 0x1p-50)) {
    // Divides only where the quotient may be larger: the rounding of the product is allowed for.
    const double relative = size / magnitude;
    if (relative > counts.max_relative) counts.max_relative = relative;
  }
}

template <class Counts>
TTRACE_HD inline void note_nonfinite(Counts& counts, double reference, double candidate,
                                     std::uint64_t index) {
  const bool reference_nan = reference != reference;
  const bool candidate_nan = candidate != candidate;
  counts.reference_nan += reference_nan;
  counts.candidate_nan += candidate_nan;
  counts.reference_inf += !reference_nan && !is_finite(reference);
  counts.candidate_inf += !candidate_nan && !is_finite(candidate);
  if ((reference_nan && candidate_nan) || reference == candidate) {
    count_bucket(counts, 0);
    return;
  }
  ++counts.nonfinite_mismatch;
  ++counts.unequal;
  if (index < counts.first_unequal) counts.first_unequal = index;
}

// A pair of finite values of floating type T.
template <class T, class Counts>
TTRACE_HD inline void add_finite(Sums& lane, Counts& counts, double reference, double candidate,
                                 std::uint64_t index) {
  const double error = candidate - reference;
  add_pair(lane, reference, candidate, error);
  if (candidate == reference) {
    count_bucket(counts, 0);
  } else {
    note_error(counts, reference, error, ulp_bucket<T>(reference, error), index);
  }
}

// The functor for floating types. `scale` multiplies the candidate: it takes a known factor out.
template <class T>
struct AccumulateFloat {
  double scale = 1;

  template <class Counts>
  TTRACE_HD void operator()(Sums& lane, Counts& counts, T reference, T candidate,
                            std::uint64_t index) const {
    const double r = static_cast<double>(widen(reference));
    const double c = static_cast<double>(widen(candidate)) * scale;
    ++counts.count;
    if (!is_finite(r) || !is_finite(c)) {
      note_nonfinite(counts, r, c, index);
      return;
    }
    add_finite<T>(lane, counts, r, c, index);
  }
};

// The functor for integers: equality and the size of an error are exact also where doubles are not.
// Buckets count the bits of the difference. A scale would make no sense and is ignored.
template <class T>
struct AccumulateInteger {
  double scale = 1;

  template <class Counts>
  TTRACE_HD void operator()(Sums& lane, Counts& counts, T reference, T candidate,
                            std::uint64_t index) const {
    const auto r = static_cast<std::int64_t>(reference);
    const auto c = static_cast<std::int64_t>(candidate);
    // Unsigned, because the difference of two int64 may need 64 bits.
    const std::uint64_t larger = static_cast<std::uint64_t>(c > r ? c : r);
    const std::uint64_t smaller = static_cast<std::uint64_t>(c > r ? r : c);
    const double size = static_cast<double>(larger - smaller);
    const double error = c > r ? size : -size;
    ++counts.count;
    add_pair(lane, static_cast<double>(r), static_cast<double>(c), error);
    if (r == c) {
      count_bucket(counts, 0);
      return;
    }
    const int bits = exponent_of(size) + 1;
    const int bucket = bits < kUlpBuckets ? bits : kUlpBuckets - 1;
    note_error(counts, static_cast<double>(r), error, bucket, index);
  }
};

template <class T>
using Accumulate =
    std::conditional_t<std::is_integral_v<T>, AccumulateInteger<T>, AccumulateFloat<T>>;

}  // namespace ttrace
