// SPDX-License-Identifier: Apache-2.0
// Takes pairs with a NaN or an Inf out of a strip (strip.hpp), for one instruction set. Included
// once for each target.
#if defined(TTRACE_DIFF_STRIP_CLEAN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_DIFF_STRIP_CLEAN_INL
#undef TTRACE_DIFF_STRIP_CLEAN_INL
#else
#define TTRACE_DIFF_STRIP_CLEAN_INL
#endif

#include <hwy/highway.h>

#include "diff/strip.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Real>
HWY_INLINE Nonfinite clean(const Strip<Real>& strip, Real* HWY_RESTRICT reference,
                           Real* HWY_RESTRICT candidate) {
  const hn::CappedTag<Real, kStripStep> d;
  constexpr std::size_t kStep = hn::MaxLanes(hn::CappedTag<Real, kStripStep>());
  Nonfinite found;
  for (std::size_t i = 0; i < strip.count; i += kStep) {
    const auto r = hn::LoadU(d, strip.reference + i);
    const auto c = hn::LoadU(d, strip.candidate + i);
    const auto bad = hn::Not(hn::And(hn::IsFinite(r), hn::IsFinite(c)));
    hn::StoreU(hn::IfThenZeroElse(bad, r), d, reference + i);
    hn::StoreU(hn::IfThenZeroElse(bad, c), d, candidate + i);
    if (hn::AllFalse(d, bad)) continue;
    const auto r_nan = hn::IsNaN(r), c_nan = hn::IsNaN(c);
    const auto same = hn::Or(hn::And(r_nan, c_nan), hn::Eq(r, c));
    const auto mismatch = hn::AndNot(same, bad);
    found.pairs += hn::CountTrue(d, bad);
    found.reference_nan += hn::CountTrue(d, r_nan);
    found.candidate_nan += hn::CountTrue(d, c_nan);
    found.reference_inf += hn::CountTrue(d, hn::IsInf(r));
    found.candidate_inf += hn::CountTrue(d, hn::IsInf(c));
    if (hn::AllFalse(d, mismatch)) continue;
    found.mismatch += hn::CountTrue(d, mismatch);
    if (found.first_mismatch != kNoIndex) continue;
    found.first_mismatch =
        strip.origin + i + static_cast<std::uint64_t>(hn::FindFirstTrue(d, mismatch));
  }
  return found;
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
