// SPDX-License-Identifier: Apache-2.0
// The loops of statistics_loops.hpp, compiled by Highway once for each instruction set, and the
// choice among them at run time.
#include <algorithm>
#include <vector>

#include "diff/statistics_loops.hpp"
#include "diff/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "diff/noise_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#define TTRACE_HAVE_VECTORS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
#if TTRACE_HAVE_VECTORS
#include "diff/noise_loops-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {

ErrorNotes subtract(const Values& reference, const Values& candidate, double scale,
                    std::size_t count, double* x, double* d) {
  const auto from = [&](const auto* left) {
    if (candidate.floats != nullptr) {
      return subtract_values(left, candidate.floats, scale, count, x, d);
    }
    return subtract_values(left, candidate.doubles, scale, count, x, d);
  };
  return reference.floats != nullptr ? from(reference.floats) : from(reference.doubles);
}

NoiseNotes add_noise(const Values& noise, const double* x, std::size_t count, bool first, double* n,
                     double* squares) {
  if (noise.floats != nullptr) return add_noise_values(noise.floats, x, count, first, n, squares);
  return add_noise_values(noise.doubles, x, count, first, n, squares);
}

NoiseSums add_run(const NoiseRun& run, const ColumnArrays* columns) {
  return add_run_values(run, columns);
}
void add_products(const double* left, const double* right, std::size_t count, std::size_t first,
                  double* lanes) {
  add_product_values(left, right, count, first, lanes);
}
ElementMaxima element_maxima(const NoiseRun& run, const ElementUnit& unit) {
  return maxima_of(run, unit);
}

extern const NoiseLoops kNoiseLoops{
    HWY_STR(HWY_NAMESPACE) + 2, subtract, add_noise, add_run, add_products, element_maxima};

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TTRACE_HAVE_VECTORS

#if HWY_ONCE
namespace ttrace {

std::span<const NoiseLoops* const> noise_loops() {
  static const std::vector<const NoiseLoops*> loops = [] {
    std::vector<const NoiseLoops*> found = usable<NoiseLoops>(TTRACE_COMPILED(kNoiseLoops));
    found.push_back(&kScalarNoiseLoops);
    return found;
  }();
  return loops;
}

}  // namespace ttrace
#endif
