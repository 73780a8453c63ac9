// SPDX-License-Identifier: Apache-2.0
// The loops of strip.hpp, compiled by Highway once for each instruction set, and the choice among
// them at run time.
#include <vector>

#include "diff/strip.hpp"
#include "diff/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "diff/strip_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#define TTRACE_HAVE_VECTORS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
#if TTRACE_HAVE_VECTORS
#include "diff/strip_clean-inl.hpp"
#include "diff/strip_notes-inl.hpp"
#include "diff/strip_sums-inl.hpp"
#include "diff/strip_widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {

template <class Real>
HWY_INLINE bool add_strip(const Strip<Real>& strip, LaneSums& sums, Metrics& total) {
  LaneSums next = sums;
  if (strip.equal) {
    if (!sum_equal(strip, next)) return false;
    sums = next;
    total.ulp[0] += strip.count;
    return true;
  }
  HWY_ALIGN double errors[kStrip];
  if (!sum_pairs(strip, next, errors)) return false;
  sums = next;
  note_errors(strip, errors, total);
  return true;
}

void widen_strip(DType type, const std::byte* from, std::size_t count, float* into) {
  if (type == DType::bfloat16) return widen_all<BFloat16>(from, count, into);
  if (type == DType::float16) return widen_all<Float16>(from, count, into);
  if (type == DType::float8_e5m2) return widen_all<Float8E5M2>(from, count, into);
  widen_all<Float8E4M3>(from, count, into);
}

bool add_floats(const Strip<float>& strip, LaneSums& sums, Metrics& total) {
  return add_strip(strip, sums, total);
}
bool add_doubles(const Strip<double>& strip, LaneSums& sums, Metrics& total) {
  return add_strip(strip, sums, total);
}
Nonfinite clean_floats(const Strip<float>& strip, float* reference, float* candidate) {
  return clean(strip, reference, candidate);
}
Nonfinite clean_doubles(const Strip<double>& strip, double* reference, double* candidate) {
  return clean(strip, reference, candidate);
}

extern const StripLoops kLoops{
    HWY_STR(HWY_NAMESPACE) + 2, widen_strip, add_floats, add_doubles, clean_floats, clean_doubles};

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TTRACE_HAVE_VECTORS

#if HWY_ONCE
namespace ttrace {

std::span<const StripLoops* const> strip_loops() {
  static const std::vector<const StripLoops*> loops = usable<StripLoops>(TTRACE_COMPILED(kLoops));
  return loops;
}

}  // namespace ttrace
#endif
