// SPDX-License-Identifier: Apache-2.0
// The loops of statistics_loops.hpp for one instruction set: the operations of the plain ones, 8, 4
// or 2 lanes at once. What is left behind the last 8 elements is done one by one.
// Included once for each target, so guarded as Highway wants it.
#if defined(TTRACE_DIFF_NOISE_LOOPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_DIFF_NOISE_LOOPS_INL
#undef TTRACE_DIFF_NOISE_LOOPS_INL
#else
#define TTRACE_DIFF_NOISE_LOOPS_INL
#endif

#include <hwy/highway.h>

#include "diff/statistics_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using NoiseTag = hn::CappedTag<double, kLanes>;
using NoiseVec = hn::Vec<NoiseTag>;
constexpr std::size_t kNoiseStep = hn::MaxLanes(NoiseTag());

HWY_INLINE NoiseVec load_value(const double* from) { return hn::LoadU(NoiseTag(), from); }
HWY_INLINE NoiseVec load_value(const float* from) {
  const hn::Rebind<float, NoiseTag> floats;
  return hn::PromoteTo(NoiseTag(), hn::LoadU(floats, from));
}

// What is behind the last whole register.
HWY_INLINE Values behind(const float* values, std::size_t done) { return {values + done, nullptr}; }
HWY_INLINE Values behind(const double* values, std::size_t done) {
  return {nullptr, values + done};
}

HWY_INLINE NoiseVec larger(NoiseVec value, NoiseVec most) {
  return hn::IfThenElse(hn::Gt(value, most), value, most);  // not Max: a NaN is passed over
}

HWY_INLINE double largest_of(NoiseVec most) {
  HWY_ALIGN double lanes[kLanes] = {};
  hn::Store(most, NoiseTag(), lanes);
  return largest_lane(lanes);
}

template <class Reference, class Candidate>
HWY_INLINE ErrorNotes subtract_values(const Reference* HWY_RESTRICT reference,
                                      const Candidate* HWY_RESTRICT candidate, double scale,
                                      std::size_t count, double* HWY_RESTRICT x,
                                      double* HWY_RESTRICT d) {
  const NoiseTag tag;
  const NoiseVec factor = hn::Set(tag, scale), zero = hn::Zero(tag);
  NoiseVec bad = zero, sizes = zero;
  std::size_t i = 0;
  for (; i + kNoiseStep <= count; i += kNoiseStep) {
    const NoiseVec value = load_value(reference + i);
    const NoiseVec error = hn::Sub(hn::Mul(load_value(candidate + i), factor), value);
    hn::StoreU(value, tag, x + i);
    hn::StoreU(error, tag, d + i);
    bad = hn::Add(bad, hn::Mul(error, zero));  // NaN for what is not finite
    sizes = hn::Or(sizes, hn::Abs(error));
  }
  ErrorNotes notes = kScalarNoiseLoops.subtract(behind(reference, i), behind(candidate, i), scale,
                                                count - i, x + i, d + i);
  notes.finite = notes.finite && hn::AllTrue(tag, hn::Eq(bad, zero));
  notes.nonzero = notes.nonzero || !hn::AllTrue(tag, hn::Eq(sizes, zero));
  return notes;
}

template <class Noise>
HWY_INLINE NoiseNotes add_noise_values(const Noise* HWY_RESTRICT noise,
                                       const double* HWY_RESTRICT x, std::size_t count, bool first,
                                       double* HWY_RESTRICT n, double* HWY_RESTRICT squares) {
  const NoiseTag tag;
  const NoiseVec zero = hn::Zero(tag);
  NoiseVec bad = zero, most = zero;
  std::size_t i = 0;
  for (; i + kNoiseStep <= count; i += kNoiseStep) {
    const NoiseVec signed_noise = hn::Sub(load_value(noise + i), hn::LoadU(tag, x + i));
    hn::StoreU(signed_noise, tag, n + i);
    NoiseVec square = hn::Mul(signed_noise, signed_noise);
    if (!first) square = hn::Add(hn::LoadU(tag, squares + i), square);
    hn::StoreU(square, tag, squares + i);
    bad = hn::Add(bad, hn::Mul(signed_noise, zero));
    most = larger(square, most);
  }
  NoiseNotes notes =
      kScalarNoiseLoops.add_noise(behind(noise, i), x + i, count - i, first, n + i, squares + i);
  notes.finite = notes.finite && hn::AllTrue(tag, hn::Eq(bad, zero));
  const double before = largest_of(most);
  notes.largest = before > notes.largest ? before : notes.largest;
  return notes;
}

// The seven sums by lane.
struct RunLanes {
  HWY_ALIGN double x2[kLanes] = {}, d2[kLanes] = {}, n2[kLanes] = {}, dx[kLanes] = {},
                   nx[kLanes] = {}, dx2[kLanes] = {}, nx2[kLanes] = {};

  void add_one(const NoiseRun& run, std::size_t i, std::size_t lane) {
    const double error = run.d[i] * run.x[i], noise = run.n[i] * run.x[i];
    x2[lane] += run.x[i] * run.x[i];
    d2[lane] += run.d[i] * run.d[i];
    n2[lane] += run.squares[i];
    dx[lane] += error;
    nx[lane] += noise;
    dx2[lane] += error * error;
    nx2[lane] += noise * noise;
  }
  [[nodiscard]] NoiseSums fold() const {
    return {sum_lanes(x2), sum_lanes(d2),  sum_lanes(n2), sum_lanes(dx),
            sum_lanes(nx), sum_lanes(dx2), sum_lanes(nx2)};
  }
};

HWY_INLINE void add_to(double* column, NoiseVec value) {
  const NoiseTag tag;
  hn::StoreU(hn::Add(hn::LoadU(tag, column), value), tag, column);
}

HWY_INLINE void add_one_to_columns(const NoiseRun& run, const ColumnArrays& columns,
                                   std::size_t i) {
  columns.x2[i] += run.x[i] * run.x[i];
  columns.d2[i] += run.d[i] * run.d[i];
  columns.n2[i] += run.squares[i];
  columns.d[i] += run.d[i];
  columns.n[i] += run.n[i];
  columns.nn[i] += run.n[i] * run.n[i];
}

// Whole groups of lanes only; `whole` is a multiple of kLanes.
template <bool kColumns>
HWY_INLINE void add_whole(const NoiseRun& run, const ColumnArrays& columns, std::size_t whole,
                          RunLanes& lanes) {
  const NoiseTag tag;
  for (std::size_t lane = 0; lane < kLanes; lane += kNoiseStep) {
    NoiseVec x2 = hn::Zero(tag), d2 = x2, n2 = x2, dx = x2, nx = x2, dx2 = x2, nx2 = x2;
    for (std::size_t i = lane; i < whole; i += kLanes) {
      const NoiseVec x = hn::LoadU(tag, run.x + i), d = hn::LoadU(tag, run.d + i);
      const NoiseVec n = hn::LoadU(tag, run.n + i), squares = hn::LoadU(tag, run.squares + i);
      const NoiseVec error = hn::Mul(d, x), noise = hn::Mul(n, x);
      const NoiseVec x_square = hn::Mul(x, x), d_square = hn::Mul(d, d);
      x2 = hn::Add(x2, x_square);
      d2 = hn::Add(d2, d_square);
      n2 = hn::Add(n2, squares);
      dx = hn::Add(dx, error);
      nx = hn::Add(nx, noise);
      dx2 = hn::Add(dx2, hn::Mul(error, error));
      nx2 = hn::Add(nx2, hn::Mul(noise, noise));
      if constexpr (kColumns) {
        add_to(columns.x2 + i, x_square);
        add_to(columns.d2 + i, d_square);
        add_to(columns.n2 + i, squares);
        add_to(columns.d + i, d);
        add_to(columns.n + i, n);
        add_to(columns.nn + i, hn::Mul(n, n));
      }
    }
    hn::Store(x2, tag, lanes.x2 + lane);
    hn::Store(d2, tag, lanes.d2 + lane);
    hn::Store(n2, tag, lanes.n2 + lane);
    hn::Store(dx, tag, lanes.dx + lane);
    hn::Store(nx, tag, lanes.nx + lane);
    hn::Store(dx2, tag, lanes.dx2 + lane);
    hn::Store(nx2, tag, lanes.nx2 + lane);
  }
}

HWY_INLINE NoiseSums add_run_values(const NoiseRun& run, const ColumnArrays* columns) {
  const std::size_t whole = run.count / kLanes * kLanes;
  RunLanes lanes;
  if (columns != nullptr) {
    add_whole<true>(run, *columns, whole, lanes);
  } else {
    add_whole<false>(run, {}, whole, lanes);
  }
  for (std::size_t i = whole; i < run.count; ++i) {
    lanes.add_one(run, i, i - whole);
    if (columns != nullptr) add_one_to_columns(run, *columns, i);
  }
  return lanes.fold();
}

HWY_INLINE void add_product_values(const double* HWY_RESTRICT left,
                                   const double* HWY_RESTRICT right, std::size_t count,
                                   std::size_t first, double* HWY_RESTRICT lanes) {
  const NoiseTag tag;
  const std::size_t before = std::min(count, (kLanes - first % kLanes) % kLanes);
  kScalarNoiseLoops.add_products(left, right, before, first, lanes);
  const std::size_t end = before + (count - before) / kLanes * kLanes;
  for (std::size_t lane = 0; lane < kLanes; lane += kNoiseStep) {
    NoiseVec sum = hn::LoadU(tag, lanes + lane);
    for (std::size_t i = before + lane; i < end; i += kLanes) {
      sum = hn::Add(sum, hn::Mul(hn::LoadU(tag, left + i), hn::LoadU(tag, right + i)));
    }
    hn::StoreU(sum, tag, lanes + lane);
  }
  kScalarNoiseLoops.add_products(left + end, right + end, count - end, 0, lanes);
}

HWY_INLINE ElementMaxima maxima_of(const NoiseRun& run, const ElementUnit& unit) {
  const NoiseTag tag;
  const NoiseVec epsilon = hn::Set(tag, unit.epsilon), row = hn::Set(tag, unit.row);
  const NoiseVec base = hn::Set(tag, unit.base), even = hn::Set(tag, unit.even);
  const NoiseVec one = hn::Set(tag, 1.0);
  NoiseVec errors = hn::Zero(tag), noises = errors;
  std::size_t i = 0;
  for (; i + kNoiseStep <= run.count; i += kNoiseStep) {
    const NoiseVec columns = hn::Mul(row, hn::LoadU(tag, unit.columns + i));
    const NoiseVec size = hn::Add(hn::Abs(hn::LoadU(tag, run.x + i)), columns);
    const NoiseVec inverse = hn::Div(one, hn::Add(hn::Mul(epsilon, size), base));
    errors = larger(hn::Mul(hn::Abs(hn::LoadU(tag, run.d + i)), inverse), errors);
    const NoiseVec square = hn::Add(hn::LoadU(tag, run.squares + i), even);
    noises = larger(hn::Mul(hn::Mul(square, inverse), inverse), noises);
  }
  ElementUnit unit_behind = unit;
  unit_behind.columns += i;
  const ElementMaxima rest =
      kScalarNoiseLoops.element_maxima(run.part(i, run.count - i), unit_behind);
  return {std::max(largest_of(errors), rest.error), std::max(largest_of(noises), rest.noise)};
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
