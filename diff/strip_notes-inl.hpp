// SPDX-License-Identifier: Apache-2.0
// What is noted of a strip that has errors (strip.hpp), for one instruction set: buckets of their
// sizes and the largest relative one. Included once for each target.
#if defined(TTRACE_DIFF_STRIP_NOTES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_DIFF_STRIP_NOTES_INL
#undef TTRACE_DIFF_STRIP_NOTES_INL
#else
#define TTRACE_DIFF_STRIP_NOTES_INL
#endif

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "diff/strip_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {

using Floats = hn::CappedTag<float, 2 * kLanes>;
using Words = hn::Repartition<std::uint32_t, Doubles>;
using Halves = hn::Repartition<std::uint16_t, Doubles>;
using Bytes = hn::Repartition<std::uint8_t, Doubles>;
using Half = hn::Vec<Halves>;
constexpr std::size_t kHalves = 4 * kWide;  // pairs whose exponents fill a register
constexpr std::size_t kBytes = 8 * kWide;   // and whose buckets do
static_assert(kBytes <= kStripStep);

// The largest number of type Real that is not above `value`, nor infinite.
template <class Real>
Real not_above(double value) {
  if constexpr (sizeof(Real) == sizeof(double)) return std::min(value, DBL_MAX);
  const float nearest = static_cast<float>(std::min<double>(value, FLT_MAX));
  return static_cast<double>(nearest) > value ? std::nextafter(nearest, 0.0f) : nearest;
}

// The exact test of a few pairs; also counts what has no relative error.
template <class Real>
HWY_NOINLINE void note_relative(const Real* reference, const double* errors, double& most,
                                std::uint64_t& zero_references) {
  const Doubles d;
  const Wide zero = hn::Zero(d);
  for (std::size_t i = 0; i < kHalves; i += kWide) {
    const Wide magnitude = hn::Abs(load_wide(reference + i));
    const Wide size = hn::Abs(hn::Load(d, errors + i));
    const auto no_reference = hn::Eq(magnitude, zero);
    zero_references += hn::CountTrue(d, hn::And(no_reference, hn::Ne(size, zero)));
#if HWY_NATIVE_FMA
    // The sign of the fused difference is exact for floats, of which none here is below 2^-500.
    if (sizeof(Real) == sizeof(float)) {
      const auto above = hn::Gt(hn::NegMulAdd(hn::Set(d, most), magnitude, size), zero);
      if (hn::AllTrue(d, hn::Or(no_reference, hn::Not(above)))) continue;
    }
#endif
    const Wide relative = hn::IfThenZeroElse(no_reference, hn::Div(size, magnitude));
    most = std::max(most, hn::GetLane(hn::MaxOfLanes(d, relative)));
  }
}

// Whether one of kHalves pairs may have the largest relative error, or any error and a reference of
// 0. Rounding keeps the order, so that error >= bound * reference holds, rounded, where error /
// reference is above the bound; `smallest` is the smallest number above 0. Raises `largest` to the
// largest error, rounded.
template <class Tag, class Real>
HWY_INLINE bool may_be_larger(Tag tag, const Real* reference, const Real* candidate,
                              hn::Vec<Tag> bound, hn::Vec<Tag> smallest, hn::Vec<Tag>& largest) {
  constexpr std::size_t kStep = hn::MaxLanes(Tag());
  auto larger = hn::Lt(smallest, hn::Zero(tag));  // none
  for (std::size_t i = 0; i < kHalves; i += kStep) {
    const auto r = hn::LoadU(tag, reference + i);
    const auto error = hn::Abs(hn::Sub(hn::LoadU(tag, candidate + i), r));
    const auto limit = hn::Max(hn::Mul(bound, hn::Abs(r)), smallest);
    largest = hn::Max(largest, error);
    larger = hn::Or(larger, hn::Ge(error, limit));
  }
  return !hn::AllFalse(tag, larger);
}

// The upper 16 bits of kHalves numbers: sign, exponent, some of the mantissa.
HWY_INLINE Half upper(hn::Vec<Words> high, hn::Vec<Words> low) {
  return hn::ConcatOdd(Halves(), hn::BitCast(Halves(), high), hn::BitCast(Halves(), low));
}
HWY_INLINE hn::Vec<Words> upper_words(const double* from) {
  return hn::ConcatOdd(Words(), hn::BitCast(Words(), load_wide(from + kWide)),
                       hn::BitCast(Words(), load_wide(from)));
}
// Exponents, biased by 1023 and 127.
HWY_INLINE Half exponents_of(const double* from) {
  const Half code = upper(upper_words(from + 2 * kWide), upper_words(from));
  return hn::ShiftRight<5>(hn::ShiftLeft<1>(code));
}
HWY_INLINE Half exponents_of(const float* from) {
  const Floats floats;
  const auto low = hn::BitCast(Words(), hn::LoadU(floats, from));
  const auto high = hn::BitCast(Words(), hn::LoadU(floats, from + 2 * kWide));
  return hn::ShiftRight<8>(hn::ShiftLeft<1>(upper(high, low)));
}
constexpr int bias_of(const float*) { return 127; }
constexpr int bias_of(const double*) { return 1023; }

// ulp_bucket of metrics.hpp, of errors that are 0 or normal.
struct Buckets {
  Half lowest, offset, one, last;

  template <class Real>
  explicit Buckets(const Strip<Real>& strip) {
    lowest = set(strip.min_exponent + bias_of(strip.reference));
    // Exponent of the error less that of the spacing: what is added to one, so that neither is
    // below 0.
    if (sizeof(Real) == sizeof(float)) offset = set(1023 - 127 - strip.mantissa);
    if (sizeof(Real) == sizeof(double)) offset = set(strip.mantissa);
    one = set(1);
    last = set(kUlpBuckets - 1);
  }
  static Half set(int value) { return hn::Set(Halves(), static_cast<std::uint16_t>(value)); }

  HWY_INLINE Half spacings(const float* reference, Half error) const {
    return hn::SaturatedSub(error, hn::Add(hn::Max(exponents_of(reference), lowest), offset));
  }
  HWY_INLINE Half spacings(const double* reference, Half error) const {
    return hn::SaturatedSub(hn::Add(error, offset), hn::Max(exponents_of(reference), lowest));
  }
  template <class Real>
  HWY_INLINE Half of(const Real* reference, const double* errors) const {
    const Half error = exponents_of(errors);
    const Half bucket = hn::Add(spacings(reference, error), one);
    // Exponent 0 is that of no error; that of an error is above all buckets.
    return hn::Min(hn::Min(bucket, last), error);
  }
};

// Counts the buckets of a strip: one comparison of bytes for each bucket that may occur.
HWY_INLINE void count_buckets(const std::uint8_t* HWY_RESTRICT buckets, std::size_t count,
                              int lowest, std::uint64_t* into) {
  const Bytes bytes;
  std::uint64_t left = count;
  for (int bucket = lowest; left > 0 && bucket < kUlpBuckets; ++bucket) {
    const auto wanted = hn::Set(bytes, static_cast<std::uint8_t>(bucket));
    std::uint64_t found = 0;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    for (std::size_t i = 0; i < count; i += kBytes) {
      found += hn::CountTrue(bytes, hn::Eq(hn::Load(bytes, buckets + i), wanted));
    }
#else
    auto counts = hn::Zero(bytes);  // at most kStrip / 16 in a byte
    for (std::size_t i = 0; i < count; i += kBytes) {
      const auto equal = hn::Eq(hn::Load(bytes, buckets + i), wanted);
      counts = hn::Sub(counts, hn::VecFromMask(bytes, equal));
    }
    const hn::Repartition<std::uint64_t, Bytes> sums;
    found = hn::GetLane(hn::SumOfLanes(sums, hn::SumsOf8(counts)));
#endif
    into[bucket] += found;
    left -= found;
  }
}
static_assert(kStrip / 16 <= 255);

// Errors whose exponents are below 34, the number of buckets; only doubles can have them.
HWY_INLINE bool any_tiny(const Strip<float>&, const double*) { return false; }
HWY_INLINE bool any_tiny(const Strip<double>& strip, const double* errors) {
  const Doubles d;
  auto found = hn::Gt(hn::Zero(d), hn::Zero(d));  // none
  for (std::size_t i = 0; i < strip.count; i += kWide) {
    const Wide size = hn::Abs(hn::Load(d, errors + i));
    found = hn::Or(found, hn::And(hn::Gt(size, hn::Zero(d)), hn::Lt(size, hn::Set(d, 0x1p-900))));
  }
  return !hn::AllFalse(d, found);
}

// zero_reference and max_relative. Returns the largest error, rounded to Real.
template <class Real>
HWY_INLINE Real note_largest_relative(const Strip<Real>& strip, const double* errors,
                                      Metrics& total) {
  const hn::CappedTag<Real, kStripStep> tag;
  const auto smallest = hn::Set(tag, std::numeric_limits<Real>::denorm_min());
  auto largest = hn::Zero(tag);
  double most = total.max_relative;
  auto bound = hn::Set(tag, not_above<Real>(most));
  for (std::size_t i = 0; i < strip.count; i += kHalves) {
    const Real* reference = strip.reference + i;
    const Real* candidate = strip.candidate + i;
    if (HWY_LIKELY(!may_be_larger(tag, reference, candidate, bound, smallest, largest))) continue;
    note_relative(reference, errors + i, most, total.zero_reference);
    bound = hn::Set(tag, not_above<Real>(most));
  }
  total.max_relative = most;
  return hn::GetLane(hn::MaxOfLanes(tag, largest));
}

HWY_INLINE double largest_error(const double* errors, std::size_t count) {
  const Doubles d;
  Wide largest = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kWide) {
    largest = hn::Max(largest, hn::Abs(hn::Load(d, errors + i)));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// first_unequal, worst and max_error.
template <class Real>
HWY_NOINLINE void note_places(const Strip<Real>& strip, const double* errors, Metrics& total) {
  const double largest = largest_error(errors, strip.count);
  const bool worse =
      largest > total.max_error || (largest == total.max_error && strip.lowest < total.worst);
  if (!worse && strip.lowest >= total.first_unequal) return;
  for (std::size_t i = 0; i < strip.count; ++i) {
    const double size = errors[i] < 0 ? -errors[i] : errors[i];
    if (size == 0) continue;
    const std::uint64_t index = strip.origin + i;
    if (index < total.first_unequal) total.first_unequal = index;
    if (size < largest || size < total.max_error) continue;
    if (size > total.max_error || index < total.worst) total.worst = index;
    total.max_error = size;
  }
}

// The histogram, and how many differ.
template <class Real>
HWY_INLINE void note_buckets(const Strip<Real>& strip, const double* errors, Metrics& total) {
  HWY_ALIGN std::uint8_t codes[kStrip];
  const Buckets buckets(strip);
  Half lowest = buckets.last;
  for (std::size_t i = 0; i < strip.count; i += kBytes) {
    const Half low = buckets.of(strip.reference + i, errors + i);
    const Half high = buckets.of(strip.reference + i + kHalves, errors + i + kHalves);
    lowest = hn::Min(lowest, hn::Min(low, high));
    // Their order does not matter.
    const auto both = hn::Or(low, hn::ShiftLeft<8>(high));
    hn::Store(hn::BitCast(Bytes(), both), Bytes(), codes + i);
  }
  const std::uint64_t equal = total.ulp[0];
  count_buckets(codes, strip.count, hn::GetLane(hn::MinOfLanes(Halves(), lowest)), total.ulp);
  total.unequal += strip.count - (total.ulp[0] - equal);
}

template <class Real>
void note_buckets_one_by_one(const Strip<Real>& strip, const double* errors, Metrics& total) {
  for (std::size_t i = 0; i < strip.count; ++i) {
    const double reference = static_cast<double>(strip.reference[i]);
    ++total.ulp[ulp_bucket(strip.mantissa, strip.min_exponent, reference, errors[i])];
    total.unequal += errors[i] != 0;
  }
}

template <class Real>
HWY_INLINE void note_errors(const Strip<Real>& strip, const double* HWY_RESTRICT errors,
                            Metrics& total) {
  const Real largest = note_largest_relative(strip, errors, total);
  if (largest == 0) {
    total.ulp[0] += strip.count;
    return;
  }
  // Rounding keeps the order: a larger error is not below, rounded.
  if (largest >= static_cast<Real>(total.max_error) || strip.lowest < total.first_unequal) {
    note_places(strip, errors, total);
  }
  if (any_tiny(strip, errors)) return note_buckets_one_by_one(strip, errors, total);
  note_buckets(strip, errors, total);
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
