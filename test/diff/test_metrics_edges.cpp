// SPDX-License-Identifier: Apache-2.0
// What is awkward to compare, on every loop of the CPU backend, against numbers worked out by hand:
// subnormals, zeros of both signs, NaN, overflow, no elements and odd sizes, and every code of the
// small types.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "diff/backend.hpp"
#include "test/catch.hpp"

namespace ttrace {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T, class Check>
void on_every_loop(DType type, const std::vector<T>& reference, const std::vector<T>& candidate,
                   Check check) {
  static const auto backends = make_cpu_backends();
  const RunPair run{reinterpret_cast<const std::byte*>(reference.data()),
                    reinterpret_cast<const std::byte*>(candidate.data()), reference.size(), 0};
  for (const auto& backend : backends) {
    INFO(backend->name() << ", " << name_of(type) << " x " << reference.size());
    Metrics total;
    backend->measure(type, 1, {&run, 1}, total);
    check(total);
  }
}

}  // namespace

TEST_CASE("subnormal floats are added exactly and counted in spacings of 2^-149") {
  constexpr int kCount = 5001;
  std::vector<std::uint32_t> reference, candidate;
  double squares = 0;
  for (std::uint32_t i = 1; i <= kCount; ++i) {
    reference.push_back(i);
    candidate.push_back(i + 1);
    squares += static_cast<double>(i) * i;
  }
  on_every_loop(DType::float32, reference, candidate, [&](const Metrics& m) {
    CHECK(m.unequal == kCount);
    CHECK(m.ulp[1] == kCount);
    CHECK(m.sums.errors == kCount * 0x1p-149);
    CHECK(m.sums.error_squares == kCount * 0x1p-298);
    CHECK(m.sums.reference_squares == squares * 0x1p-298);
    CHECK(m.max_error == 0x1p-149);
    CHECK(m.max_relative == 1);  // 2^-149 against 2^-148
    CHECK(m.worst == 0);
  });
}

TEST_CASE("subnormal doubles, whose squares are 0, still differ") {
  std::vector<std::uint64_t> reference(3001, 7), candidate(3001, 8);
  on_every_loop(DType::float64, reference, candidate, [](const Metrics& m) {
    CHECK(m.unequal == 3001);
    CHECK(m.ulp[1] == 3001);
    CHECK(m.sums.error_squares == 0);
    CHECK(m.sums.errors == 3001 * 0x1p-1074);
    CHECK(m.max_relative == 1.0 / 7);
  });
}

TEST_CASE("every size up to two strips, and none") {
  for (std::size_t count = 0; count < 1100; count += count < 140 ? 1 : 37) {
    std::vector<float> reference(count, 4.0f), candidate(count, 4.0f);
    std::uint64_t unequal = 0;
    for (std::size_t i = 2; i < count; i += 3, ++unequal) candidate[i] = 4.5f;
    on_every_loop(DType::float32, reference, candidate, [&](const Metrics& m) {
      CHECK(m.count == count);
      CHECK(m.unequal == unequal);
      CHECK(m.ulp[0] == count - unequal);
      // Half of one in [4, 8) is 2^-1 / 2^-21 spacings.
      CHECK(m.ulp[21] == unequal);
      CHECK(m.sums.reference_squares == 16.0 * static_cast<double>(count));
      CHECK(m.sums.error_squares == 0.25 * static_cast<double>(unequal));
      CHECK(m.sums.error_products == 2.0 * static_cast<double>(unequal));
      CHECK(m.first_unequal == (unequal > 0 ? 2 : kNoIndex));
      CHECK(m.worst == (unequal > 0 ? 2 : kNoIndex));
    });
  }
}

TEST_CASE("zeros of both signs are equal in every floating type, also in long runs") {
  const std::pair<DType, unsigned> kTypes[] = {{DType::bfloat16, 2}, {DType::float16, 2}};
  for (const auto& [type, size] : kTypes) {
    on_every_loop(type, std::vector<std::uint16_t>(1003, 0),
                  std::vector<std::uint16_t>(1003, 0x8000), [](const Metrics& m) {
                    CHECK(m.unequal == 0);
                    CHECK(m.ulp[0] == 1003);
                    CHECK(m.first_unequal == kNoIndex);
                  });
  }
  on_every_loop(DType::float32, std::vector<float>(1003, -0.0f), std::vector<float>(1003, 0.0f),
                [](const Metrics& m) {
                  CHECK(m.unequal == 0);
                  CHECK(m.ulp[0] == 1003);
                  CHECK(std::signbit(m.sums.errors) == false);
                });
}

TEST_CASE("a NaN equals a NaN of other bits, in the middle and all over") {
  std::vector<std::uint32_t> reference(2005, 0x7fc00000), candidate(2005, 0xff800001);
  on_every_loop(DType::float32, reference, candidate, [](const Metrics& m) {
    CHECK(m.reference_nan == 2005);
    CHECK(m.candidate_nan == 2005);
    CHECK(m.unequal == 0);
    CHECK(m.ulp[0] == 2005);
    CHECK(m.sums.reference_squares == 0);
  });
}

TEST_CASE("what is not finite is told apart element by element") {
  // A strip of each: one thing in it, at a place of its own.
  std::vector<float> reference(3000, 2.0f), candidate(3000, 2.0f);
  reference[100] = candidate[100] = kNaN;  // equal
  reference[700] = candidate[700] = kInf;  // equal
  reference[1300] = kNaN;
  candidate[1901] = -kInf;
  reference[2502] = kInf;
  candidate[2502] = -kInf;
  candidate[2999] = 3.0f;
  on_every_loop(DType::float32, reference, candidate, [](const Metrics& m) {
    CHECK(m.reference_nan == 2);
    CHECK(m.candidate_nan == 1);
    CHECK(m.reference_inf == 2);
    CHECK(m.candidate_inf == 3);
    CHECK(m.nonfinite_mismatch == 3);
    CHECK(m.unequal == 4);
    CHECK(m.ulp[0] == 2996);
    CHECK(m.first_unequal == 1300);
    CHECK(m.worst == 2999);
    CHECK(m.sums.reference_squares == 4.0 * (3000 - 5));
    CHECK(m.sums.candidate_squares == 4.0 * (3000 - 6) + 9);
  });
}

TEST_CASE("doubles whose squares overflow keep exact counts, maxima and places") {
  std::vector<double> reference(1500, 1e300), candidate(1500, 1e300);
  candidate[1234] = 1.5e300;
  candidate[400] = -1e308;
  reference[401] = 1.7e308;
  candidate[401] = -1.7e308;  // the error is infinite
  on_every_loop(DType::float64, reference, candidate, [](const Metrics& m) {
    CHECK(m.unequal == 3);
    CHECK(m.nonfinite_mismatch == 0);
    CHECK(m.first_unequal == 400);
    CHECK(m.max_error == std::numeric_limits<double>::infinity());
    CHECK(m.worst == 401);
    CHECK(m.sums.reference_squares == std::numeric_limits<double>::infinity());
    CHECK(m.ulp[0] == 1497);
  });
}

TEST_CASE("a reference of 0 has no relative error, however many there are") {
  std::vector<float> reference(2000, 0.0f), candidate(2000, 1e-30f);
  reference[1999] = 4.0f;
  candidate[1999] = 5.0f;
  on_every_loop(DType::float32, reference, candidate, [](const Metrics& m) {
    CHECK(m.zero_reference == 1999);
    CHECK(m.max_relative == 0.25);
    CHECK(m.max_error == 1);
    CHECK(m.worst == 1999);
    CHECK(m.unequal == 2000);
  });
}

TEST_CASE("one bucket may hold everything") {
  std::vector<float> reference(40000, 1.0f), candidate(40000, 1.0f + 0x1p-20f);
  on_every_loop(DType::float32, reference, candidate,
                [](const Metrics& m) { CHECK(m.ulp[4] == 40000); });
}

TEST_CASE("every code of the small types is widened to its value") {
  for (const DType type :
       {DType::bfloat16, DType::float16, DType::float8_e4m3fn, DType::float8_e5m2}) {
    const std::size_t size = size_of(type);
    // Among zeros, so that it is no run too short for a strip.
    std::vector<std::byte> reference(16 * size), zero(16 * size);
    const auto backends = make_cpu_backends();
    std::uint64_t wrong = 0;
    for (std::uint32_t code = 0; code < (size == 1 ? 256u : 65536u); ++code) {
      std::memcpy(reference.data() + 5 * size, &code, size);
      const double value = decode(type, reference.data(), 5);
      const RunPair run{reference.data(), zero.data(), 16, 0};
      for (const auto& backend : backends) {
        Metrics m;
        backend->measure(type, 1, {&run, 1}, m);
        if (std::isnan(value)) {
          wrong += m.reference_nan != 1;
        } else if (std::isinf(value)) {
          wrong += m.reference_inf != 1;
        } else {
          wrong += m.sums.errors != -value || m.max_error != std::fabs(value);
        }
      }
    }
    INFO(name_of(type));
    CHECK(wrong == 0);
  }
}

}  // namespace ttrace
