// SPDX-License-Identifier: Apache-2.0
// The instruction sets that loops are compiled for, and which of them this processor has. To be
// included before any header of Highway.
#pragma once

// Those that are measured and fuzzed; any other processor has the plain loops.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_SCALAR | HWY_EMU128))
#include <hwy/detect_targets.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace ttrace {

// Instead of Highway's own function: its library times the processor's clock as it is loaded, which
// takes longer than to start one of our programs.
[[nodiscard]] inline bool runs_here([[maybe_unused]] std::int64_t target) {
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

// Loops that were compiled for one target.
template <class Loops>
struct Compiled {
  std::int64_t target;
  const Loops* loops;
};

// Those that run here, of a list that TTRACE_COMPILED(loops) makes, the fastest first.
template <class Loops>
[[nodiscard]] std::vector<const Loops*> usable(std::initializer_list<Compiled<Loops>> compiled) {
  std::vector<const Loops*> found;
  for (const Compiled<Loops>& one : compiled) {
    if (runs_here(one.target)) found.push_back(one.loops);
  }
  return found;
}

}  // namespace ttrace

// {target, &N_TARGET::loops}, for each target that this compiler was asked for.
#if HWY_TARGETS & HWY_AVX3
#define TTRACE_COMPILED_AVX3(loops) {HWY_AVX3, &N_AVX3::loops},
#else
#define TTRACE_COMPILED_AVX3(loops)
#endif
#if HWY_TARGETS & HWY_AVX2
#define TTRACE_COMPILED_AVX2(loops) {HWY_AVX2, &N_AVX2::loops},
#else
#define TTRACE_COMPILED_AVX2(loops)
#endif
#if HWY_TARGETS & HWY_SSE4
#define TTRACE_COMPILED_SSE4(loops) {HWY_SSE4, &N_SSE4::loops},
#else
#define TTRACE_COMPILED_SSE4(loops)
#endif
#if HWY_TARGETS & HWY_NEON
#define TTRACE_COMPILED_NEON(loops) {HWY_NEON, &N_NEON::loops},
#else
#define TTRACE_COMPILED_NEON(loops)
#endif
#define TTRACE_COMPILED(loops)                                                          \
  {                                                                                     \
    TTRACE_COMPILED_AVX3(loops)                                                         \
    TTRACE_COMPILED_AVX2(loops) TTRACE_COMPILED_SSE4(loops) TTRACE_COMPILED_NEON(loops) \
  }
