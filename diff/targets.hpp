// SPDX-License-Identifier: Apache-2.0
// The instruction sets that loops are compiled for, and which of them this processor has. To be
// included before any header of Highway.
#pragma once

// Those that are measured and fuzzed; any other processor has the plain loops.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_SCALAR | HWY_EMU128))
#include <hwy/detect_targets.h>

#include <cstdint>

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

}  // namespace ttrace
