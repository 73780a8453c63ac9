// SPDX-License-Identifier: Apache-2.0
// The CPU backend: cuts runs of floats into strips (strip.hpp), which the loops of the processor's
// instruction set add. Integers, very short runs and doubles whose squares overflow are taken one
// by one.
#include "diff/block_walk.hpp"

namespace ttrace {
namespace {

template <class Real>
bool add_strip(const StripLoops& loops, const Strip<Real>& strip, LaneSums& sums, Metrics& total) {
  if constexpr (sizeof(Real) == sizeof(float))
    return loops.add_floats(strip, sums, total);
  else
    return loops.add_doubles(strip, sums, total);
}
template <class Real>
Nonfinite clean_strip(const StripLoops& loops, const Strip<Real>& strip, Real* reference,
                      Real* candidate) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    return loops.clean_floats(strip, reference, candidate);
  } else {
    return loops.clean_doubles(strip, reference, candidate);
  }
}

template <class T>
class StripWalk {
 public:
  StripWalk(const StripLoops& loops, double scale, Metrics& total)
      : loops_(loops), scale_(scale), total_(total) {}

  // A stretch of a run within one block.
  void add(const RunPair& run, std::uint64_t begin, std::uint64_t count, OpenBlock& block) {
    if (count < kLanes) return add_one_by_one<T>({scale_}, run, begin, count, block, total_);
    std::uint64_t front = block.position % kLanes;
    for (std::uint64_t done = 0; done < count; front = 0) {
      const std::uint64_t size = std::min(kStrip - front, count - done);
      add_raw(run, begin + done, front, size, block.sums);
      done += size;
    }
    total_.count += count;
  }

 private:
  // Elements [begin, begin + size) of the run, after `front` zeros.
  void add_raw(const RunPair& run, std::uint64_t begin, std::uint64_t front, std::uint64_t size,
               LaneSums& sums) {
    const std::byte* reference = run.reference + begin * sizeof(T);
    const std::byte* candidate = run.candidate + begin * sizeof(T);
    const std::uint64_t padded = (front + size + kStripStep - 1) / kStripStep * kStripStep;
    if (padded != size || !aligned(reference) || !aligned(candidate)) {
      reference = pad(reference, front, size, padded, padded_reference_);
      candidate = pad(candidate, front, size, padded, padded_candidate_);
    }
    const std::uint64_t first = run.first + begin;
    if (sizeof(T) <= sizeof(float) && scale_ == 1) {
      add_floats(reference, candidate, padded, {first - front, first}, sums);
    } else {
      add_doubles(reference, candidate, padded, {first - front, first}, sums);
    }
    total_.ulp[0] -= padded - size;
  }

  static bool aligned(const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0;
  }

  static const std::byte* pad(const std::byte* data, std::uint64_t front, std::uint64_t size,
                              std::uint64_t padded, std::byte* into) {
    std::memset(into, 0, front * sizeof(T));
    std::memcpy(into + front * sizeof(T), data, size * sizeof(T));
    std::memset(into + (front + size) * sizeof(T), 0, (padded - front - size) * sizeof(T));
    return into;
  }

  struct Place {
    std::uint64_t origin, lowest;
  };

  template <class Real>
  static Strip<Real> strip_of(const Real* reference, const Real* candidate, std::uint64_t count,
                              bool equal, const Place& place) {
    return {reference,
            candidate,
            count,
            equal,
            place.origin,
            place.lowest,
            Grid<T>::kMantissa,
            Grid<T>::kMinExponent};
  }

  void add_floats(const std::byte* reference, const std::byte* candidate, std::uint64_t count,
                  const Place& place, LaneSums& sums) {
    const bool equal = std::memcmp(reference, candidate, count * sizeof(T)) == 0;
    const float* left = as_floats(reference, count, reference_.floats);
    const float* right = equal ? left : as_floats(candidate, count, candidate_.floats);
    measure(strip_of(left, right, count, equal, place), clean_reference_.floats,
            clean_candidate_.floats, sums);
  }

  const float* as_floats(const std::byte* data, std::uint64_t count, float* into) {
    if constexpr (std::is_same_v<T, float>) return reinterpret_cast<const float*>(data);
    loops_.widen(code_of(), data, count, into);
    return into;
  }

  static DType code_of() {
    if constexpr (std::is_same_v<T, BFloat16>) return DType::bfloat16;
    if constexpr (std::is_same_v<T, Float16>) return DType::float16;
    if constexpr (std::is_same_v<T, Float8E5M2>) return DType::float8_e5m2;
    return DType::float8_e4m3fn;
  }

  void add_doubles(const std::byte* reference, const std::byte* candidate, std::uint64_t count,
                   const Place& place, LaneSums& sums) {
    const bool equal = scale_ == 1 && std::memcmp(reference, candidate, count * sizeof(T)) == 0;
    const double* left = as_doubles(reference, count, 1, reference_.doubles);
    const double* right = as_doubles(candidate, count, scale_, candidate_.doubles);
    measure(strip_of(left, right, count, equal, place), clean_reference_.doubles,
            clean_candidate_.doubles, sums);
  }

  static const double* as_doubles(const std::byte* data, std::uint64_t count, double scale,
                                  double* into) {
    if constexpr (std::is_same_v<T, double>) {
      if (scale == 1) return reinterpret_cast<const double*>(data);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      into[i] = static_cast<double>(widen(load_element<T>(data, i))) * scale;
    }
    return into;
  }

  // Strips with a NaN or an Inf come together: after one, the next is cleaned without a try.
  template <class Real>
  void measure(Strip<Real> strip, Real* clean_reference, Real* clean_candidate, LaneSums& sums) {
    if (!cleaning_ && add_strip(loops_, strip, sums, total_)) return;
    const Nonfinite found = clean_strip(loops_, strip, clean_reference, clean_candidate);
    cleaning_ = found.pairs > 0;
    note(found);
    strip.reference = clean_reference;
    strip.candidate = clean_candidate;
    strip.equal = std::memcmp(clean_reference, clean_candidate, strip.count * sizeof(Real)) == 0;
    if (!add_strip(loops_, strip, sums, total_)) add_pairs(strip, sums);
  }

  void note(const Nonfinite& found) {
    total_.reference_nan += found.reference_nan;
    total_.reference_inf += found.reference_inf;
    total_.candidate_nan += found.candidate_nan;
    total_.candidate_inf += found.candidate_inf;
    total_.nonfinite_mismatch += found.mismatch;
    total_.unequal += found.mismatch;
    total_.ulp[0] -= found.mismatch;  // which the strip counts as pairs of zeros
    total_.first_unequal = std::min(total_.first_unequal, found.first_mismatch);
  }

  // What the functor does to finite pairs.
  template <class Real>
  void add_pairs(const Strip<Real>& strip, LaneSums& sums) {
    for (std::size_t i = 0; i < strip.count; ++i) {
      const double r = strip.reference[i], c = strip.candidate[i];
      Sums lane = sums.take(i % kLanes);
      add_finite<T>(lane, total_, r, c, strip.origin + i);
      sums.put(i % kLanes, lane);
    }
  }

  union alignas(64) Buffer {
    float floats[kStrip];
    double doubles[kStrip];
  };

  const StripLoops& loops_;
  double scale_;
  Metrics& total_;
  bool cleaning_ = false;
  alignas(64) std::byte padded_reference_[kStrip * sizeof(T)];
  alignas(64) std::byte padded_candidate_[kStrip * sizeof(T)];
  Buffer reference_, candidate_, clean_reference_, clean_candidate_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const StripLoops& loops, std::string name) : loops_(loops), name_(std::move(name)) {}
  [[nodiscard]] std::string_view name() const override { return name_; }

  void measure_blocks(DType type, double scale, std::span<const RunPair> runs, Metrics& counts,
                      std::vector<Sums>& blocks) const override {
    if (!is_floating(type)) return integers_->measure_blocks(type, scale, runs, counts, blocks);
    visit_dtype(type, [&](auto sample) {
      using T = decltype(sample);
      if constexpr (!std::is_integral_v<T>) {
        StripWalk<T> walk(loops_, scale, counts);
        walk_blocks(runs, blocks,
                    [&](const RunPair& run, std::uint64_t begin, std::uint64_t count,
                        OpenBlock& block) { walk.add(run, begin, count, block); });
      }
    });
  }

 private:
  const StripLoops& loops_;
  std::string name_;
  std::unique_ptr<Backend> integers_ = make_scalar_backend();
};

}  // namespace

std::vector<std::unique_ptr<Backend>> make_cpu_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const StripLoops* loops : strip_loops()) {
    backends.push_back(std::make_unique<CpuBackend>(*loops, std::string("cpu-") + loops->target));
  }
  backends.push_back(make_scalar_backend());
  return backends;
}

// All loops give the same, so that reports do not name one.
std::unique_ptr<Backend> make_cpu_backend() {
  if (strip_loops().empty()) return make_scalar_backend();
  return std::make_unique<CpuBackend>(*strip_loops().front(), "cpu");
}

}  // namespace ttrace
