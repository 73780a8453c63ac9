// SPDX-License-Identifier: Apache-2.0
// Statistics against sums in long double over values decoded one by one.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "libttrace/statistics.hpp"
#include "test/catch.hpp"

using namespace ttrace;

namespace {

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Statistics plain(DType type, const std::vector<std::byte>& bytes) {
  Statistics out;
  long double sum = 0;
  bool first = true;
  for (std::size_t i = 0; i < bytes.size() / size_of(type); ++i) {
    const double value = decode(type, bytes.data(), i);
    if (std::isnan(value)) {
      ++out.nan_count;
    } else if (std::isinf(value)) {
      ++out.inf_count;
    } else {
      sum += static_cast<long double>(value) * value;
      if (first || value < out.min) out.min = value;
      if (first || value > out.max) out.max = value;
      first = false;
    }
  }
  out.sum_squares = static_cast<double>(sum);
  return out;
}

Statistics streamed(DType type, std::span<const std::byte> bytes, std::size_t piece) {
  StatisticsStream stream(type);
  while (!bytes.empty()) {
    const std::size_t take = std::min(piece, bytes.size());
    stream.append(bytes.first(take));
    bytes = bytes.subspan(take);
  }
  return stream.finish();
}

bool same_bits(const Statistics& left, const Statistics& right) {
  return std::memcmp(&left, &right, sizeof left) == 0;
}

}  // namespace

TEST_CASE("statistics of random bits of every type are those of its values") {
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const DType type = static_cast<DType>(code);
    CAPTURE(name_of(type));
    for (const std::size_t elements : {1u, 7u, 8u, 9u, 1023u, 1024u, 1025u, 10000u}) {
      const auto bytes = random_bytes(elements * size_of(type), code + 1u);
      const Statistics want = plain(type, bytes);
      const Statistics got = streamed(type, bytes, bytes.size());
      CHECK(got.nan_count == want.nan_count);
      CHECK(got.inf_count == want.inf_count);
      CHECK(got.min == want.min);
      CHECK(got.max == want.max);
      CHECK(got.sum_squares == Approx(want.sum_squares).epsilon(1e-14));
    }
  }
}

TEST_CASE("rows of one 16-bit code hold the value that decode gives it") {
  StatisticsStream stream;
  for (const DType type : {DType::bfloat16, DType::float16}) {
    unsigned wrong = 0;
    for (unsigned code = 0; code < 65536; ++code) {
      const std::vector<std::uint16_t> row(8, static_cast<std::uint16_t>(code));
      const double value = decode(type, reinterpret_cast<const std::byte*>(row.data()), 0);
      stream.reset(type);

      stream.append(std::as_bytes(std::span(row)));

      const Statistics got = stream.finish();
      const bool finite = std::isfinite(value);
      const bool right = finite ? got.min == value && std::signbit(got.max) == std::signbit(value)
                                : (std::isnan(value) ? got.nan_count : got.inf_count) == 8;
      if (!right || got.max != got.min) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the cut into pieces does not change a bit") {
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const DType type = static_cast<DType>(code);
    CAPTURE(name_of(type));
    const auto bytes = random_bytes(5003 * size_of(type), code + 100u);
    const Statistics whole = streamed(type, bytes, bytes.size());
    for (const std::size_t piece : {1u, 2u, 3u, 5u, 7u, 64u, 1000u, 4097u, 8191u}) {
      CHECK(same_bits(streamed(type, bytes, piece), whole));
    }
  }
}

TEST_CASE("statistics of nothing are zero") {
  CHECK(same_bits(streamed(DType::float32, {}, 1), Statistics{}));
  const std::vector<float> none_finite{NAN, INFINITY, -INFINITY};
  const Statistics got = streamed(DType::float32, std::as_bytes(std::span(none_finite)), 5);
  CHECK(got.min == 0);
  CHECK(got.max == 0);
  CHECK(got.sum_squares == 0);
  CHECK(got.nan_count == 1);
  CHECK(got.inf_count == 2);
}

TEST_CASE("a stream that was reset forgets everything") {
  StatisticsStream stream(DType::float64);
  stream.append(random_bytes(1003, 1));  // ends inside an element
  stream.reset(DType::int8);
  const std::vector<std::int8_t> values{3, -4};

  stream.append(std::as_bytes(std::span(values)));

  const Statistics got = stream.finish();
  CHECK(got.sum_squares == 25);
  CHECK(got.min == -4);
  CHECK(got.max == 3);
}

TEST_CASE("sums of many equal squares stay exact to a few roundings") {
  const std::vector<float> values(3'000'000, 0.1f);
  const Statistics got = streamed(DType::float32, std::as_bytes(std::span(values)), 1 << 20);
  const double square = static_cast<double>(0.1f) * static_cast<double>(0.1f);
  CHECK(got.sum_squares == Approx(3e6 * square).epsilon(1e-13));
}
