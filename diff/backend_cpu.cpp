// SPDX-License-Identifier: Apache-2.0
// The CPU backend. Elements that the functor treats alike (finite, one lane each) are taken in
// strips, with loops the compiler can vectorise: the same operations in the same order, so the bits
// are those of the functor applied one by one, which is what happens at the ends of runs and where
// a strip holds a NaN or an Inf.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "diff/backend.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kStrip = 256;  // elements at most; its arrays stay in the first cache

// Two lanes in one register of any 64-bit processor; named members, because compilers keep those in
// registers and arrays not.
typedef double Two __attribute__((vector_size(16)));

struct Lanes {
  Two a, b, c, d;

  static Lanes load(const double* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof(lanes));
    return lanes;
  }
  void store(double* into) const { std::memcpy(into, this, sizeof(*this)); }
  double operator[](int lane) const {
    double values[kLanes];
    store(values);
    return values[lane];
  }
  void put(int lane, double value) {
    double values[kLanes];
    store(values);
    values[lane] = value;
    *this = load(values);
  }
  // Adds the product, rounded, of each lane.
  void add_product(const Lanes& left, const Lanes& right) {
    a += left.a * right.a;
    b += left.b * right.b;
    c += left.c * right.c;
    d += left.d * right.d;
  }
  void operator+=(const Lanes& other) {
    a += other.a;
    b += other.b;
    c += other.c;
    d += other.d;
  }
};
static_assert(sizeof(Lanes) == kLanes * sizeof(double));

inline Lanes operator-(const Lanes& left, const Lanes& right) {
  return {left.a - right.a, left.b - right.b, left.c - right.c, left.d - right.d};
}

// The lanes of a block, by sum.
struct LaneSums {
  Lanes error_squares = {}, reference_squares = {}, candidate_squares = {}, error_products = {},
        errors = {};

  [[nodiscard]] Sums take(int lane) const {
    return {error_squares[lane], reference_squares[lane], candidate_squares[lane],
            error_products[lane], errors[lane]};
  }
  void put(int lane, const Sums& sums) {
    error_squares.put(lane, sums.error_squares);
    reference_squares.put(lane, sums.reference_squares);
    candidate_squares.put(lane, sums.candidate_squares);
    error_products.put(lane, sums.error_products);
    errors.put(lane, sums.errors);
  }
};

// A strip of widened elements, and what is found in it.
struct Strip {
  std::uint64_t size = 0;  // a multiple of kLanes
  double reference[kStrip];
  double candidate[kStrip];
  double error[kStrip];
  std::uint32_t bucket[kStrip];
};

// add_pair for each element. Several passes, because one needs more registers than there are.
void add_strip(Strip& strip, LaneSums& sums) {
  Lanes errors = sums.errors, error_squares = sums.error_squares;
  for (std::uint64_t i = 0; i < strip.size; i += kLanes) {
    const Lanes error = Lanes::load(strip.candidate + i) - Lanes::load(strip.reference + i);
    error.store(strip.error + i);
    errors += error;
    error_squares.add_product(error, error);
  }
  sums.errors = errors;
  sums.error_squares = error_squares;

  Lanes references = sums.reference_squares, products = sums.error_products;
  for (std::uint64_t i = 0; i < strip.size; i += kLanes) {
    const Lanes reference = Lanes::load(strip.reference + i);
    references.add_product(reference, reference);
    products.add_product(Lanes::load(strip.error + i), reference);
  }
  sums.reference_squares = references;
  sums.error_products = products;

  Lanes candidates = sums.candidate_squares;
  for (std::uint64_t i = 0; i < strip.size; i += kLanes) {
    const Lanes candidate = Lanes::load(strip.candidate + i);
    candidates.add_product(candidate, candidate);
  }
  sums.candidate_squares = candidates;
}

double largest_error(const Strip& strip) {
  double largest[4] = {};
  for (std::uint64_t i = 0; i < strip.size; i += 4) {
    for (std::uint64_t k = 0; k < 4; ++k) {
      const double size = std::fabs(strip.error[i + k]);
      largest[k] = size > largest[k] ? size : largest[k];
    }
  }
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

// The upper half of a double without its sign: exponent and 20 bits of mantissa.
inline std::int32_t upper_half(double value) {
  return static_cast<std::int32_t>(__builtin_bit_cast(std::uint64_t, value) >> 32 & 0x7fffffffu);
}

// The bucket of each error; mantissa and min_exponent are those of Grid. Returns zero_reference.
std::uint64_t find_buckets(Strip& strip, int mantissa, int min_exponent) {
  const std::int32_t lowest = min_exponent + 1023;
  std::int32_t zeros = 0;
  for (std::uint64_t i = 0; i < strip.size; ++i) {
    const std::int32_t at = upper_half(strip.reference[i]) >> 20;
    std::int32_t bucket =
        (upper_half(strip.error[i]) >> 20) - (at > lowest ? at : lowest) + (mantissa + 1);
    bucket = bucket < 1 ? 1 : bucket;
    bucket = bucket < kUlpBuckets ? bucket : kUlpBuckets - 1;
    const std::int32_t unequal = strip.error[i] != 0 ? 1 : 0;
    strip.bucket[i] = static_cast<std::uint32_t>(bucket * unequal);
    zeros += strip.reference[i] == 0 ? unequal : 0;
  }
  return static_cast<std::uint64_t>(zeros);
}

// The largest |error| / |reference|, over references that are not 0.
double largest_relative(Strip& strip) {
  double largest = 0;
  for (std::uint64_t i = 0; i < strip.size; ++i) {
    const double magnitude = std::fabs(strip.reference[i]);
    const double size = std::fabs(strip.error[i]);
    // Divides only where the quotient may be larger: rounding of the product is allowed for.
    if (size >= largest * magnitude * (1 - 0x1p-50) && magnitude > 0) {
      largest = std::max(largest, size / magnitude);
    }
  }
  return largest;
}

// bool's bytes are compared as they are: a stray 2 must not be undefined behaviour.
template <class T>
using Storage = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
T load(const std::byte* data, std::uint64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

// Walks runs, carrying the block from one to the next.
template <class T>
class Walk {
 public:
  Walk(double scale, Metrics& total) : functor_{scale}, total_(total) {}

  void run(const RunPair& pair) {
    for (std::uint64_t done = 0; done < pair.count;) {
      const std::uint64_t room = kBlockElements - position_;
      const std::uint64_t count = std::min(room, pair.count - done);
      stretch(pair, done, count);
      done += count;
      position_ += count;
      if (position_ == kBlockElements) end_block();
    }
  }

  void end_block() {
    Sums lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes_.take(lane);
    add(total_.sums, fold_lanes(lanes));
    lanes_ = LaneSums{};
    position_ = 0;
  }

 private:
  // [begin, begin + count) of the run, all within one block.
  void stretch(const RunPair& pair, std::uint64_t begin, std::uint64_t count) {
    std::uint64_t at = 0;
    if constexpr (!std::is_integral_v<T>) {
      const std::uint64_t head = std::min(count, (kLanes - position_ % kLanes) % kLanes);
      one_by_one(pair, begin, 0, head);
      at = head;
      while (count - at >= kLanes) {
        const std::uint64_t size = std::min(kStrip, (count - at) / kLanes * kLanes);
        if (!strip(pair, begin + at, size)) one_by_one(pair, begin + at, at, size);
        at += size;
      }
    }
    one_by_one(pair, begin + at, at, count - at);
  }

  void one_by_one(const RunPair& pair, std::uint64_t begin, std::uint64_t offset,
                  std::uint64_t count) {
    if (count == 0) return;
    Sums lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes_.take(lane);
    for (std::uint64_t i = 0; i < count; ++i) {
      functor_(lanes[(position_ + offset + i) % kLanes], total_, load<T>(pair.reference, begin + i),
               load<T>(pair.candidate, begin + i), pair.first + begin + i);
    }
    for (int lane = 0; lane < kLanes; ++lane) lanes_.put(lane, lanes[lane]);
  }

  // False, and nothing added, when an element may be NaN or Inf: then a square is.
  bool strip(const RunPair& pair, std::uint64_t begin, std::uint64_t size) {
    strip_.size = size;
    const double scale = functor_.scale;
    for (std::uint64_t i = 0; i < strip_.size; ++i) {
      strip_.reference[i] = static_cast<double>(widen(load<T>(pair.reference, begin + i)));
    }
    for (std::uint64_t i = 0; i < strip_.size; ++i) {
      strip_.candidate[i] = static_cast<double>(widen(load<T>(pair.candidate, begin + i))) * scale;
    }
    LaneSums sums = lanes_;
    add_strip(strip_, sums);
    Lanes all = sums.reference_squares;
    all += sums.candidate_squares;
    all += sums.error_squares;
    double sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += all[lane];
    if (!is_finite(sum)) return false;
    lanes_ = sums;
    total_.count += size;
    const double max_error = largest_error(strip_);
    if (max_error == 0) {
      total_.ulp[0] += size;
    } else {
      note_errors(pair.first + begin, max_error);
    }
    return true;
  }

  void note_errors(std::uint64_t first, double max_error) {
    total_.zero_reference += find_buckets(strip_, Grid<T>::kMantissa, Grid<T>::kMinExponent);
    total_.max_relative = std::max(total_.max_relative, largest_relative(strip_));
    const std::uint64_t equal = total_.ulp[0];
    for (std::uint64_t i = 0; i < strip_.size; ++i) ++total_.ulp[strip_.bucket[i]];
    total_.unequal += strip_.size - (total_.ulp[0] - equal);
    const bool worse =
        max_error > total_.max_error || (max_error == total_.max_error && first < total_.worst);
    if (worse || first < total_.first_unequal) find_indices(first, max_error);
  }

  void find_indices(std::uint64_t first, double max_error) {
    for (std::uint64_t i = 0; i < strip_.size; ++i) {
      const double size = std::fabs(strip_.error[i]);
      if (size == 0) continue;
      total_.first_unequal = std::min(total_.first_unequal, first + i);
      if (size < max_error || size < total_.max_error) continue;
      total_.worst = size > total_.max_error ? first + i : std::min(total_.worst, first + i);
      total_.max_error = size;
    }
  }

  Accumulate<T> functor_;
  Metrics& total_;
  LaneSums lanes_;
  Strip strip_;
  std::uint64_t position_ = 0;  // within the block
};

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }

  void measure(DType type, double scale, std::span<const RunPair> runs,
               Metrics& total) const override {
    visit_dtype(type, [&](auto sample) {
      Walk<Storage<decltype(sample)>> walk(scale, total);
      for (const RunPair& run : runs) walk.run(run);
      walk.end_block();
    });
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace ttrace
