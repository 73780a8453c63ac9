// SPDX-License-Identifier: Apache-2.0
// The arithmetic: closed forms, a long double oracle that shares no code with it, and the promise
// that results do not depend on how the elements are cut into runs, tiles and strips.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "diff/backend.hpp"
#include "diff/convert.hpp"
#include "test/catch.hpp"

namespace ttrace {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Sums that overflow may be NaN.
bool bits_equal(double left, double right) {
  return std::memcmp(&left, &right, sizeof left) == 0 || (std::isnan(left) && std::isnan(right));
}
bool bits_equal(const Sums& left, const Sums& right) {
  return bits_equal(left.error_squares, right.error_squares) &&
         bits_equal(left.reference_squares, right.reference_squares) &&
         bits_equal(left.candidate_squares, right.candidate_squares) &&
         bits_equal(left.error_products, right.error_products) &&
         bits_equal(left.errors, right.errors);
}

void check_equal(const Metrics& left, const Metrics& right) {
  CHECK(bits_equal(left.sums, right.sums));
  CHECK(left.max_error == right.max_error);
  CHECK(left.max_relative == right.max_relative);
  CHECK(left.count == right.count);
  CHECK(left.unequal == right.unequal);
  CHECK(left.zero_reference == right.zero_reference);
  CHECK(left.reference_nan == right.reference_nan);
  CHECK(left.reference_inf == right.reference_inf);
  CHECK(left.candidate_nan == right.candidate_nan);
  CHECK(left.candidate_inf == right.candidate_inf);
  CHECK(left.nonfinite_mismatch == right.nonfinite_mismatch);
  CHECK(left.first_unequal == right.first_unequal);
  CHECK(left.worst == right.worst);
  CHECK(std::equal(left.ulp, left.ulp + kUlpBuckets, right.ulp));
}

// By every loop that this processor can run; they must agree.
Metrics measure_bytes(DType type, const std::vector<std::byte>& reference,
                      const std::vector<std::byte>& candidate, double scale = 1) {
  static const auto backends = make_cpu_backends();
  const RunPair run{reference.data(), candidate.data(), reference.size() / size_of(type), 0};
  Metrics expected;
  backends.back()->measure(type, scale, {&run, 1}, expected);
  for (const auto& backend : backends) {
    INFO(backend->name());
    Metrics total;
    backend->measure(type, scale, {&run, 1}, total);
    check_equal(total, expected);
  }
  return expected;
}

template <class T>
Metrics measure_values(DType type, const std::vector<T>& reference, const std::vector<T>& candidate,
                       double scale = 1) {
  return measure_bytes(type, bytes_of(reference), bytes_of(candidate), scale);
}

// Random codes of a type; candidates differ in about a third of the elements, by a few codes.
struct Sample {
  std::vector<std::byte> reference, candidate;
};
Sample random_sample(DType type, std::uint64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Sample sample;
  sample.reference.resize(count * size_of(type));
  for (std::byte& byte : sample.reference) {
    byte = static_cast<std::byte>(type == DType::boolean ? random() & 1u : random() & 0xffu);
  }
  sample.candidate = sample.reference;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (random() % 3 != 0) continue;
    std::byte& low = sample.candidate[i * size_of(type)];
    low = type == DType::boolean ? static_cast<std::byte>(random() & 1u)
                                 : low ^ static_cast<std::byte>(random() & 7u);
  }
  return sample;
}

// By the definition, in order, without lanes and without the functor.
struct Oracle {
  long double error_squares = 0, reference_squares = 0, candidate_squares = 0, products = 0,
              errors = 0, sizes = 0;
  double max_error = 0;
  std::uint64_t unequal = 0, mismatch = 0, nan = 0, first = kNoIndex, worst = kNoIndex;
};

// Exact for every type: a long double has the 64 bits that an int64 needs.
long double exact_value(DType type, const std::vector<std::byte>& bytes, std::uint64_t index) {
  if (type != DType::int64) return decode(type, bytes.data(), index);
  std::int64_t value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

Oracle oracle_of(DType type, const Sample& sample) {
  Oracle oracle;
  const std::uint64_t count = sample.reference.size() / size_of(type);
  for (std::uint64_t i = 0; i < count; ++i) {
    const long double r = exact_value(type, sample.reference, i);
    const long double c = exact_value(type, sample.candidate, i);
    bool different = false;
    if (std::isfinite(r) && std::isfinite(c)) {
      const long double d = c - r;
      oracle.error_squares += d * d;
      oracle.reference_squares += r * r;
      oracle.candidate_squares += c * c;
      oracle.products += d * r;
      oracle.errors += d;
      oracle.sizes += std::fabs(d);
      different = r != c;
      if (different && static_cast<double>(std::fabs(d)) > oracle.max_error) {
        oracle.max_error = static_cast<double>(std::fabs(d));
        oracle.worst = i;
      }
    } else {
      different = !(std::isnan(r) && std::isnan(c)) && r != c;
      oracle.mismatch += different;
      oracle.nan += std::isnan(r);
    }
    oracle.unequal += different;
    if (different && oracle.first == kNoIndex) oracle.first = i;
  }
  return oracle;
}

void check_close(double value, long double truth, long double scale) {
  const long double error = std::fabs(static_cast<long double>(value) - truth);
  INFO("value " << value << " truth " << static_cast<double>(truth));
  CHECK(static_cast<double>(error) <= 1e-12 * static_cast<double>(std::fabs(scale)));
}

}  // namespace

TEST_CASE("sums, maxima and indices of a small example are those worked out by hand") {
  const Metrics m = measure_values<float>(DType::float32, {3, -4, 0, 1}, {3, -2, 0.5f, 1});

  CHECK(m.count == 4);
  CHECK(m.unequal == 2);
  CHECK(m.sums.error_squares == 4.25);
  CHECK(m.sums.reference_squares == 26);
  CHECK(m.sums.candidate_squares == 14.25);
  CHECK(m.sums.error_products == -8);
  CHECK(m.sums.errors == 2.5);
  CHECK(m.max_error == 2);
  CHECK(m.max_relative == 0.5);
  CHECK(m.zero_reference == 1);
  CHECK(m.first_unequal == 1);
  CHECK(m.worst == 1);
}

TEST_CASE("the first of equally large errors is the worst") {
  std::vector<float> reference(1000, 1.0f), candidate(1000, 1.0f);
  candidate[300] = candidate[301] = candidate[900] = 3.0f;

  const Metrics m = measure_values(DType::float32, reference, candidate);

  CHECK(m.worst == 300);
  CHECK(m.first_unequal == 300);
  CHECK(m.max_error == 2);
}

TEST_CASE("an error of n spacings is counted in the bucket of n's bit length") {
  const float one = 1.0f;
  const float spacing = std::numeric_limits<float>::epsilon();
  const Metrics m =
      measure_values<float>(DType::float32, {one, one, one, one, one, 0.0f},
                            {one, one + spacing, one + 2 * spacing, one + 3 * spacing,
                             one + 8 * spacing, std::numeric_limits<float>::denorm_min()});

  CHECK(m.ulp[0] == 1);
  CHECK(m.ulp[1] == 2);  // one spacing, and one subnormal spacing at zero
  CHECK(m.ulp[2] == 2);  // two and three
  CHECK(m.ulp[4] == 1);  // eight
}

TEST_CASE("spacings are those of the stored type") {
  // bfloat16 codes 0x3f80 (1) and 0x3f81 (1 + 2^-7) are neighbours.
  const Metrics m = measure_values<std::uint16_t>(DType::bfloat16, {0x3f80}, {0x3f81});
  CHECK(m.ulp[1] == 1);
  CHECK(m.max_error == 0x1p-7);
}

TEST_CASE("NaN equals NaN and nothing else; an infinity equals itself") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Metrics m = measure_values<float>(DType::float32, {nan, nan, inf, inf, 1, 1, 2},
                                          {nan, 1, inf, -inf, nan, inf, 2});

  CHECK(m.reference_nan == 2);
  CHECK(m.candidate_nan == 2);
  CHECK(m.reference_inf == 2);
  CHECK(m.candidate_inf == 3);
  CHECK(m.nonfinite_mismatch == 4);
  CHECK(m.unequal == 4);
  CHECK(m.first_unequal == 1);
  CHECK(m.sums.reference_squares == 4);  // of the one finite pair
}

TEST_CASE("a NaN in a long run is found, and the finite elements around it still count") {
  std::vector<double> reference(5000, 1.0), candidate(5000, 1.0);
  candidate[2500] = std::numeric_limits<double>::quiet_NaN();

  const Metrics m = measure_values(DType::float64, reference, candidate);

  CHECK(m.nonfinite_mismatch == 1);
  CHECK(m.first_unequal == 2500);
  CHECK(m.sums.reference_squares == 4999);
}

TEST_CASE("zeros of both signs are equal") {
  CHECK(measure_values<float>(DType::float32, {0.0f}, {-0.0f}).unequal == 0);
}

TEST_CASE("integers that are equal as doubles are told apart") {
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Metrics m = measure_values<std::int64_t>(DType::int64, {large, 5}, {large + 1, 5});
  CHECK(m.unequal == 1);
  CHECK(m.max_error == 1);
  CHECK(m.first_unequal == 0);
}

TEST_CASE("the distance of extreme integers does not overflow") {
  const Metrics m =
      measure_values<std::int64_t>(DType::int64, {std::numeric_limits<std::int64_t>::min()},
                                   {std::numeric_limits<std::int64_t>::max()});
  CHECK(m.max_error == 0x1p64);
  CHECK(m.sums.errors == 0x1p64);
}

TEST_CASE("a factor of two is taken out exactly") {
  std::mt19937 random(3);
  std::vector<float> reference, candidate;
  for (int i = 0; i < 3000; ++i) {
    reference.push_back(static_cast<float>(random()) * 0x1p-32f - 0.5f);
    candidate.push_back(2 * reference.back());
  }
  const Metrics plain = measure_values(DType::float32, reference, candidate);
  const Metrics scaled = measure_values(DType::float32, reference, candidate, 0.5);

  CHECK(plain.sums.error_products == plain.sums.reference_squares);
  CHECK(scaled.unequal == 0);
  CHECK(scaled.sums.error_squares == 0);
}

TEST_CASE("every type agrees with an oracle in long double") {
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const auto type = static_cast<DType>(code);
    INFO(name_of(type));
    Sample sample = random_sample(type, 20011, 7u + code);
    if (type == DType::float64 || type == DType::float32) {
      // Codes at random span all exponents; squares must stay in the range of a double.
      std::mt19937 random(99);
      const std::size_t size = size_of(type);
      for (std::uint64_t i = 0; i < 20011; ++i) {
        for (auto* bytes : {&sample.reference, &sample.candidate}) {
          (*bytes)[i * size + size - 1] = static_cast<std::byte>(0x3f);
        }
      }
    }
    const Metrics m = measure_bytes(type, sample.reference, sample.candidate);
    const Oracle oracle = oracle_of(type, sample);

    CHECK(m.count == 20011);
    CHECK(m.unequal == oracle.unequal);
    CHECK(m.nonfinite_mismatch == oracle.mismatch);
    CHECK(m.reference_nan == oracle.nan);
    CHECK(m.first_unequal == oracle.first);
    CHECK(m.worst == oracle.worst);
    CHECK(m.max_error == oracle.max_error);
    check_close(m.sums.error_squares, oracle.error_squares, oracle.error_squares);
    check_close(m.sums.reference_squares, oracle.reference_squares, oracle.reference_squares);
    check_close(m.sums.candidate_squares, oracle.candidate_squares, oracle.candidate_squares);
    check_close(m.sums.errors, oracle.errors, oracle.sizes);
    check_close(m.sums.error_products, oracle.products,
                std::sqrt(oracle.error_squares * oracle.reference_squares));
    std::uint64_t counted = 0;
    for (const std::uint64_t bucket : m.ulp) counted += bucket;
    CHECK(counted == m.count - m.nonfinite_mismatch);
  }
}

TEST_CASE("strips give the bits of the functor applied one by one") {
  const auto backend = make_cpu_backend();
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const auto type = static_cast<DType>(code);
    INFO(name_of(type));
    const std::uint64_t count = 3 * kBlockElements + 777;
    const Sample sample = random_sample(type, count, 40u + code);

    Metrics expected;
    visit_dtype(type, [&](auto tag) {
      using T =
          std::conditional_t<std::is_same_v<decltype(tag), bool>, std::uint8_t, decltype(tag)>;
      const Accumulate<T> accumulate{1.0};
      for (std::uint64_t first = 0; first < count; first += kBlockElements) {
        Sums lanes[kLanes];
        for (std::uint64_t i = first; i < std::min(count, first + kBlockElements); ++i) {
          T reference, candidate;
          std::memcpy(&reference, sample.reference.data() + i * sizeof(T), sizeof(T));
          std::memcpy(&candidate, sample.candidate.data() + i * sizeof(T), sizeof(T));
          accumulate(lanes[i % kLanes], expected, reference, candidate, i);
        }
        add(expected.sums, fold_lanes(lanes));
      }
    });
    check_equal(measure_bytes(type, sample.reference, sample.candidate), expected);
  }
}

TEST_CASE("results do not depend on where runs and tiles end") {
  const DType type = DType::bfloat16;
  const std::uint64_t count = 4 * kBlockElements + 1001;
  const Sample sample = random_sample(type, count, 5);
  const Metrics whole = measure_bytes(type, sample.reference, sample.candidate);
  const auto backend = make_cpu_backend();
  std::mt19937 random(11);

  for (int attempt = 0; attempt < 5; ++attempt) {
    Metrics total;
    std::vector<RunPair> runs;
    std::uint64_t in_tile = 0;
    for (std::uint64_t at = 0; at < count;) {
      // A tile is measured whenever it holds whole blocks and chance wants it.
      const std::uint64_t to_block = kBlockElements - in_tile % kBlockElements;
      const std::uint64_t wanted = 1 + random() % 3000;
      const std::uint64_t length = std::min({count - at, to_block, wanted});
      runs.push_back(
          {sample.reference.data() + 2 * at, sample.candidate.data() + 2 * at, length, at});
      at += length;
      in_tile += length;
      if (in_tile % kBlockElements == 0 && random() % 2 == 0) {
        backend->measure(type, 1, runs, total);
        runs.clear();
        in_tile = 0;
      }
    }
    if (!runs.empty()) backend->measure(type, 1, runs, total);
    check_equal(total, whole);
  }
}

TEST_CASE("different floats meet in the type that holds both, floats and integers nowhere") {
  CHECK(common_type(DType::bfloat16, DType::bfloat16) == DType::bfloat16);
  CHECK(common_type(DType::bfloat16, DType::float32) == DType::float32);
  CHECK(common_type(DType::float16, DType::bfloat16) == DType::float32);
  CHECK(common_type(DType::float8_e5m2, DType::float64) == DType::float64);
  CHECK(common_type(DType::int32, DType::int64) == DType::int64);
  CHECK(common_type(DType::boolean, DType::uint8) == DType::int64);
  CHECK_FALSE(common_type(DType::int32, DType::float32).has_value());
}

TEST_CASE("conversion keeps every value of the smaller type") {
  for (const DType type : {DType::bfloat16, DType::float16}) {
    std::vector<std::uint16_t> codes(65536);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
    const auto bytes = bytes_of(codes);
    std::vector<float> out(codes.size());
    convert(type, bytes.data(), codes.size(), DType::float32,
            reinterpret_cast<std::byte*>(out.data()));
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const double expected = decode(type, bytes.data(), i);
      wrong += !(std::isnan(expected) ? std::isnan(out[i]) : out[i] == expected);
    }
    CHECK(wrong == 0);
  }
}

}  // namespace ttrace
