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

using Words = hn::CappedTag<std::int32_t, 2 * kLanes>;
using Word = hn::Vec<Words>;
using Floats = hn::CappedTag<float, 2 * kLanes>;
constexpr std::size_t kWords = hn::MaxLanes(Words());
static_assert(kWords == 2 * kWide && kWords <= kStripStep);

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
  for (std::size_t i = 0; i < kWords; i += kWide) {
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

// Which lanes of a register of words have an error, and whether one of them may be the largest
// relative one: rounding keeps the order, so that error >= bound * reference holds, rounded, where
// error / reference is above the bound.
struct Watch {
  hn::Mask<Words> unequal;
  bool larger;
};

HWY_INLINE Watch watch(const float* reference, const float* candidate, const double*, float bound) {
  const Floats f;
  const Words words;
  const auto r = hn::LoadU(f, reference);
  const auto error = hn::Sub(hn::LoadU(f, candidate), r);
  const auto unequal = hn::Ne(error, hn::Zero(f));
  const auto limit = hn::Mul(hn::Set(f, bound), hn::Abs(r));
  const auto larger = hn::And(unequal, hn::Ge(hn::Abs(error), limit));
  return {hn::RebindMask(words, unequal), !hn::AllFalse(f, larger)};
}

HWY_INLINE Watch watch(const double* reference, const double*, const double* errors, double bound) {
  const Doubles d;
  const Words words;
  const Wide factor = hn::Set(d, bound), zero = hn::Zero(d);
  const Wide low = hn::Load(d, errors), high = hn::Load(d, errors + kWide);
  const auto low_unequal = hn::Ne(low, zero), high_unequal = hn::Ne(high, zero);
  const Wide low_limit = hn::Mul(factor, hn::Abs(load_wide(reference)));
  const Wide high_limit = hn::Mul(factor, hn::Abs(load_wide(reference + kWide)));
  const auto larger = hn::Or(hn::And(low_unequal, hn::Ge(hn::Abs(low), low_limit)),
                             hn::And(high_unequal, hn::Ge(hn::Abs(high), high_limit)));
  const Word both = hn::ConcatOdd(words, hn::BitCast(words, hn::VecFromMask(d, high_unequal)),
                                  hn::BitCast(words, hn::VecFromMask(d, low_unequal)));
  return {hn::MaskFromVec(both), !hn::AllFalse(d, larger)};
}

// The upper halves of doubles: sign, exponent and 20 bits of mantissa.
HWY_INLINE Word upper_halves(const double* from) {
  const Doubles d;
  const Words words;
  return hn::ConcatOdd(words, hn::BitCast(words, hn::LoadU(d, from + kWide)),
                       hn::BitCast(words, hn::LoadU(d, from)));
}

// The exponent, biased by 1023.
HWY_INLINE Word exponents(Word upper) {
  const hn::RebindToUnsigned<Words> bits;
  return hn::BitCast(Words(), hn::ShiftRight<21>(hn::ShiftLeft<1>(hn::BitCast(bits, upper))));
}
HWY_INLINE Word exponents_of(const double* from) { return exponents(upper_halves(from)); }
// The exponent, biased by 127.
HWY_INLINE Word exponents_of(const float* from) {
  const hn::RebindToUnsigned<Words> bits;
  const auto code = hn::BitCast(bits, hn::LoadU(Floats(), from));
  return hn::BitCast(Words(), hn::ShiftRight<24>(hn::ShiftLeft<1>(code)));
}
constexpr int bias_of(const float*) { return 127; }
constexpr int bias_of(const double*) { return 1023; }

// Counts the buckets of a strip: one comparison of bytes for each bucket that may occur.
HWY_INLINE void count_buckets(const std::uint8_t* HWY_RESTRICT buckets, std::size_t count,
                              int lowest, std::uint64_t* into) {
  const hn::ScalableTag<std::uint8_t> bytes;
  constexpr std::size_t kBytes = hn::MaxLanes(hn::ScalableTag<std::uint8_t>());
  const std::size_t padded = (count + kBytes - 1) / kBytes * kBytes;
  std::uint64_t left = count;
  for (int bucket = lowest; left > 0 && bucket < kUlpBuckets; ++bucket) {
    const auto wanted = hn::Set(bytes, static_cast<std::uint8_t>(bucket));
    std::uint64_t found = 0;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    for (std::size_t i = 0; i < padded; i += kBytes) {
      found += hn::CountTrue(bytes, hn::Eq(hn::Load(bytes, buckets + i), wanted));
    }
#else
    auto counts = hn::Zero(bytes);  // at most 16 in a byte
    for (std::size_t i = 0; i < padded; i += kBytes) {
      const auto equal = hn::Eq(hn::Load(bytes, buckets + i), wanted);
      counts = hn::Sub(counts, hn::VecFromMask(bytes, equal));
    }
    const hn::Repartition<std::uint64_t, decltype(bytes)> sums;
    found = hn::GetLane(hn::SumOfLanes(sums, hn::SumsOf8(counts)));
#endif
    into[bucket] += found;
    left -= found;
  }
}

// zero_reference, max_relative and the histogram.
template <class Real>
HWY_INLINE void note_errors(const Strip<Real>& strip, const double* HWY_RESTRICT errors,
                            Metrics& total) {
  const Words words;
  const hn::Rebind<std::uint8_t, Words> bytes;
  HWY_ALIGN std::uint8_t buckets[kStrip];
  const int bias = bias_of(strip.reference);
  const Word lowest_exponent = hn::Set(words, strip.min_exponent + bias);
  const Word offset = hn::Set(words, strip.mantissa + 1 - 1023 + bias);
  const Word one = hn::Set(words, 1), last = hn::Set(words, kUlpBuckets - 1);
  Word lowest = last;
  double most = total.max_relative;
  Real bound = not_above<Real>(most);
  for (std::size_t i = 0; i < strip.count; i += kWords) {
    const Watch seen = watch(strip.reference + i, strip.candidate + i, errors + i, bound);
    if (HWY_UNLIKELY(seen.larger)) {
      note_relative(strip.reference + i, errors + i, most, total.zero_reference);
      bound = not_above<Real>(most);
    }
    const Word at = hn::Max(exponents_of(strip.reference + i), lowest_exponent);
    Word bucket = hn::Add(hn::Sub(exponents_of(errors + i), at), offset);
    bucket = hn::IfThenElseZero(seen.unequal, hn::Min(hn::Max(bucket, one), last));
    lowest = hn::Min(lowest, bucket);
    hn::StoreU(hn::DemoteTo(bytes, bucket), bytes, buckets + i);
  }
  total.max_relative = most;
  // Bytes past the end are no bucket.
  for (std::size_t i = strip.count; i % 64 != 0; ++i) buckets[i] = 0xff;
  const std::uint64_t equal = total.ulp[0];
  count_buckets(buckets, strip.count, hn::GetLane(hn::MinOfLanes(words, lowest)), total.ulp);
  total.unequal += strip.count - (total.ulp[0] - equal);
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
