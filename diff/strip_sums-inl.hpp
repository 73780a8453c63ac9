// SPDX-License-Identifier: Apache-2.0
// The sums of a strip (strip.hpp), for one instruction set. A register holds 8, 4 or 2 lanes of a
// block, so that there are 1, 2 or 4 passes, each with its sums in registers.
// Included once for each target, so guarded as Highway wants it.
#if defined(TTRACE_DIFF_STRIP_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_DIFF_STRIP_SUMS_INL
#undef TTRACE_DIFF_STRIP_SUMS_INL
#else
#define TTRACE_DIFF_STRIP_SUMS_INL
#endif

#include <hwy/highway.h>

#include "diff/strip.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, kLanes>;
using Wide = hn::Vec<Doubles>;
constexpr std::size_t kWide = hn::MaxLanes(Doubles());

HWY_INLINE Wide load_wide(const double* from) { return hn::LoadU(Doubles(), from); }
HWY_INLINE Wide load_wide(const float* from) {
  const hn::Rebind<float, Doubles> floats;
  return hn::PromoteTo(Doubles(), hn::LoadU(floats, from));
}

// sum + value * value, rounded twice; the square of a float is exact in a double, so that it may be
// fused.
template <class Real>
HWY_INLINE Wide add_square(Wide sum, Wide value) {
  if constexpr (sizeof(Real) == sizeof(float)) return hn::MulAdd(value, value, sum);
  return hn::Add(sum, hn::Mul(value, value));
}

HWY_INLINE bool all_finite(Wide value) {
  return hn::AllTrue(Doubles(), hn::Eq(hn::Mul(value, hn::Zero(Doubles())), hn::Zero(Doubles())));
}

// False, and sums are not to be used, when one is not finite.
template <class Real>
HWY_INLINE bool sum_equal(const Strip<Real>& strip, LaneSums& sums) {
  const Doubles d;
  constexpr std::size_t kTwo =
      kWide < kLanes ? kWide : 0;  // two registers hide what an addition takes
  bool finite = true;
  for (std::size_t lane = 0; lane < kLanes; lane += kWide + kTwo) {
    Wide references = hn::Load(d, sums.reference_squares + lane);
    Wide candidates = hn::Load(d, sums.candidate_squares + lane);
    Wide more_references = hn::Load(d, sums.reference_squares + lane + kTwo);
    Wide more_candidates = hn::Load(d, sums.candidate_squares + lane + kTwo);
    for (std::size_t i = lane; i < strip.count; i += kLanes) {
      const Wide value = load_wide(strip.reference + i);
      const Wide square = hn::Mul(value, value);
      references = hn::Add(references, square);
      candidates = hn::Add(candidates, square);
      if constexpr (kTwo == 0) continue;
      const Wide other = load_wide(strip.reference + i + kTwo);
      const Wide other_square = hn::Mul(other, other);
      more_references = hn::Add(more_references, other_square);
      more_candidates = hn::Add(more_candidates, other_square);
    }
    finite = finite && all_finite(hn::Add(references, candidates));
    if constexpr (kTwo != 0) {
      finite = finite && all_finite(hn::Add(more_references, more_candidates));
      hn::Store(more_references, d, sums.reference_squares + lane + kTwo);
      hn::Store(more_candidates, d, sums.candidate_squares + lane + kTwo);
    }
    hn::Store(references, d, sums.reference_squares + lane);
    hn::Store(candidates, d, sums.candidate_squares + lane);
  }
  return finite;
}

// add_pair for each; the errors are kept. False, and sums are not to be used, when one is not
// finite.
template <class Real>
HWY_INLINE bool sum_pairs(const Strip<Real>& strip, LaneSums& sums, double* HWY_RESTRICT errors) {
  const Doubles d;
  bool finite = true;
  for (std::size_t lane = 0; lane < kLanes; lane += kWide) {
    Wide error_squares = hn::Load(d, sums.error_squares + lane);
    Wide reference_squares = hn::Load(d, sums.reference_squares + lane);
    Wide candidate_squares = hn::Load(d, sums.candidate_squares + lane);
    Wide products = hn::Load(d, sums.error_products + lane);
    Wide error_sums = hn::Load(d, sums.errors + lane);
    for (std::size_t i = lane; i < strip.count; i += kLanes) {
      const Wide reference = load_wide(strip.reference + i);
      const Wide candidate = load_wide(strip.candidate + i);
      const Wide error = hn::Sub(candidate, reference);
      hn::Store(error, d, errors + i);
      error_squares = hn::Add(error_squares, hn::Mul(error, error));
      reference_squares = add_square<Real>(reference_squares, reference);
      candidate_squares = add_square<Real>(candidate_squares, candidate);
      products = hn::Add(products, hn::Mul(error, reference));
      error_sums = hn::Add(error_sums, error);
    }
    const Wide squares = hn::Add(reference_squares, candidate_squares);
    finite = finite && all_finite(hn::Add(squares, error_squares));
    hn::Store(error_squares, d, sums.error_squares + lane);
    hn::Store(reference_squares, d, sums.reference_squares + lane);
    hn::Store(candidate_squares, d, sums.candidate_squares + lane);
    hn::Store(products, d, sums.error_products + lane);
    hn::Store(error_sums, d, sums.errors + lane);
  }
  return finite;
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
