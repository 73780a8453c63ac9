// SPDX-License-Identifier: Apache-2.0
// The loops of strip.hpp, compiled by Highway once for each instruction set, and the choice among
// them at run time.
#include <vector>

#include "diff/strip.hpp"

// Those that are measured and fuzzed; any other processor has the loop over the functor.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_SCALAR | HWY_EMU128))
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
namespace {

struct Compiled {
  std::int64_t target;
  const StripLoops* loops;
};
constexpr Compiled kCompiled[] = {
#if HWY_TARGETS & HWY_AVX3
    {HWY_AVX3, &N_AVX3::kLoops},
#endif
#if HWY_TARGETS & HWY_AVX2
    {HWY_AVX2, &N_AVX2::kLoops},
#endif
#if HWY_TARGETS & HWY_SSE4
    {HWY_SSE4, &N_SSE4::kLoops},
#endif
#if HWY_TARGETS & HWY_NEON
    {HWY_NEON, &N_NEON::kLoops},
#endif
    {0, nullptr},
};

// Instead of Highway's own function: its library times the processor's clock as it is loaded, which
// takes longer than to start one of our programs.
bool runs_here([[maybe_unused]] std::int64_t target) {
#if HWY_ARCH_X86
  const bool sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (target == HWY_SSE4) return sse4;
  if (target == HWY_AVX2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return true;  // those that are compiled are there on every processor of the kind
#endif
}

}  // namespace

std::span<const StripLoops* const> strip_loops() {
  static const std::vector<const StripLoops*> usable = [] {
    std::vector<const StripLoops*> loops;
    for (const Compiled& compiled : kCompiled) {
      if (compiled.loops != nullptr && runs_here(compiled.target)) loops.push_back(compiled.loops);
    }
    return loops;
  }();
  return usable;
}

}  // namespace ttrace
#endif
