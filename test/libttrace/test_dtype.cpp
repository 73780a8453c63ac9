// SPDX-License-Identifier: Apache-2.0
// Every code of the small float formats against values computed with ldexp from sign, exponent and
// mantissa: another method than the bit shifts of the decoders.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "libttrace/core/dtype.hpp"
#include "test/catch.hpp"

using namespace ttrace;

namespace {

struct Format {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // "fn" formats spend only the last code on NaN
};

const std::vector<Format> kFormats{{DType::bfloat16, 8, 7, true},
                                   {DType::float16, 5, 10, true},
                                   {DType::float8_e4m3fn, 4, 3, false},
                                   {DType::float8_e5m2, 5, 2, true}};

double value_of(const Format& format, unsigned code) {
  const unsigned exponent_end = 1u << format.exponent_bits;
  const unsigned mantissa_end = 1u << format.mantissa_bits;
  const unsigned mantissa = code % mantissa_end;
  const unsigned exponent = code / mantissa_end % exponent_end;
  const double sign = code / mantissa_end / exponent_end == 1 ? -1 : 1;
  const int bias = static_cast<int>(exponent_end) / 2 - 1;
  if (exponent == exponent_end - 1) {
    if (format.has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
    if (mantissa == mantissa_end - 1) return NAN;
  }
  const double steps = mantissa + (exponent == 0 ? 0.0 : mantissa_end);
  const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - format.mantissa_bits;
  return sign * std::ldexp(steps, scale);
}

template <class T>
double decoded(DType type, const std::vector<T>& values, std::size_t index) {
  return decode(type, reinterpret_cast<const std::byte*>(values.data()), index);
}

unsigned code_count(const Format& format) {
  return 1u << (1 + format.exponent_bits + format.mantissa_bits);
}

}  // namespace

TEST_CASE("every code of the 16- and 8-bit floats has the value its fields say") {
  for (const Format& format : kFormats) {
    CAPTURE(name_of(format.dtype));
    unsigned wrong = 0;
    for (unsigned code = 0; code < code_count(format); ++code) {
      const auto wide = static_cast<std::uint16_t>(code);
      const auto narrow = static_cast<std::uint8_t>(code);
      const double got = size_of(format.dtype) == 2
                             ? decoded(format.dtype, std::vector<std::uint16_t>{0, wide}, 1)
                             : decoded(format.dtype, std::vector<std::uint8_t>{0, narrow}, 1);
      const double want = value_of(format, code);
      const bool same = std::isnan(want) ? std::isnan(got)
                                         : got == want && std::signbit(got) == std::signbit(want);
      if (!same) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("every value of a small float is stored as its code, what lies between as the nearest") {
  for (const Format& format : kFormats) {
    CAPTURE(name_of(format.dtype));
    const auto stored = [&format](double value) {
      std::uint16_t code = 0;
      encode(format.dtype, value, reinterpret_cast<std::byte*>(&code), 0);
      return unsigned{code};
    };
    const unsigned half = code_count(format) / 2;  // codes from here on are negative
    unsigned wrong = 0;
    for (unsigned code = 0; code < half; ++code) {
      const double value = value_of(format, code);
      if (std::isnan(value)) {
        wrong += !std::isnan(value_of(format, stored(value)));
        continue;
      }
      wrong += stored(value) != code;
      wrong += stored(-value) != code + half;
      // The step past the largest finite value is as long as the one before it.
      const double next = value_of(format, code + 1);
      if (!std::isfinite(value)) continue;
      const double above = std::isfinite(next) ? next : 2 * value - value_of(format, code - 1);
      const double middle = value + (above - value) / 2;  // exact in double
      wrong += stored(middle) != (code % 2 == 0 ? code : code + 1);
      wrong += stored(std::nextafter(middle, INFINITY)) != code + 1;
      wrong += stored(std::nextafter(middle, 0)) != code;
    }
    CHECK(wrong == 0);
    const unsigned beyond = stored(1e300);
    CHECK((format.has_infinity ? std::isinf(value_of(format, beyond))
                               : std::isnan(value_of(format, beyond))));
    CHECK(stored(-5e-324) == half);
  }
  double wide = 0;
  encode(DType::float64, 0.1, reinterpret_cast<std::byte*>(&wide), 0);
  CHECK(wide == 0.1);
  float single[2] = {7, 7};
  encode(DType::float32, 1 + 0x3p-24, reinterpret_cast<std::byte*>(single), 1);
  CHECK(single[0] == 7);
  CHECK(single[1] == 1 + 0x1p-22f);
}

TEST_CASE("well-known values of the float8 formats") {
  const std::vector<std::uint8_t> e4m3{0x7e, 0x01, 0x7f, 0x78};
  CHECK(decoded(DType::float8_e4m3fn, e4m3, 0) == 448);
  CHECK(decoded(DType::float8_e4m3fn, e4m3, 1) == 0.001953125);
  CHECK(std::isnan(decoded(DType::float8_e4m3fn, e4m3, 2)));
  CHECK(decoded(DType::float8_e4m3fn, e4m3, 3) == 256);  // infinity in an IEEE-like format
  const std::vector<std::uint8_t> e5m2{0x7b, 0x7c, 0xfc};
  CHECK(decoded(DType::float8_e5m2, e5m2, 0) == 57344);
  CHECK(decoded(DType::float8_e5m2, e5m2, 1) == INFINITY);
  CHECK(decoded(DType::float8_e5m2, e5m2, 2) == -INFINITY);
}

TEST_CASE("float32 and float64 are themselves") {
  const std::vector<float> floats{1.5f, -0.0f, 1e-45f, INFINITY};
  const std::vector<double> doubles{0.1, -5e-324, 1.7976931348623157e308};
  for (std::size_t i = 0; i < floats.size(); ++i) {
    CHECK(decoded(DType::float32, floats, i) == static_cast<double>(floats[i]));
  }
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    CHECK(decoded(DType::float64, doubles, i) == doubles[i]);
  }
  CHECK(std::signbit(decoded(DType::float32, floats, 1)));
  CHECK(std::isnan(decoded(DType::float32, std::vector<float>{NAN}, 0)));
}

TEST_CASE("integers keep their sign and size") {
  for (int value = -128; value < 128; ++value) {
    const std::vector<std::int8_t> one{static_cast<std::int8_t>(value)};
    REQUIRE(decoded(DType::int8, one, 0) == value);
  }
  for (int value = 0; value < 256; ++value) {
    const std::vector<std::uint8_t> one{static_cast<std::uint8_t>(value)};
    REQUIRE(decoded(DType::uint8, one, 0) == value);
  }
  CHECK(decoded(DType::int16, std::vector<std::int16_t>{-32768, 32767}, 0) == -32768);
  CHECK(decoded(DType::int16, std::vector<std::int16_t>{-32768, 32767}, 1) == 32767);
  CHECK(decoded(DType::int32, std::vector<std::int32_t>{-2147483647 - 1}, 0) == -2147483648.0);
  CHECK(decoded(DType::int64, std::vector<std::int64_t>{std::int64_t{1} << 53}, 0) == 0x1p53);
  CHECK(decoded(DType::int64, std::vector<std::int64_t>{-3}, 0) == -3);
}

TEST_CASE("any non-zero byte is true") {
  const std::vector<std::uint8_t> bytes{0, 1, 2, 255};
  CHECK(decoded(DType::boolean, bytes, 0) == 0);
  for (std::size_t i = 1; i < bytes.size(); ++i) CHECK(decoded(DType::boolean, bytes, i) == 1);
}

TEST_CASE("names and sizes are torch's") {
  const std::vector<std::pair<std::string, std::size_t>> table{
      {"float64", 8},       {"float32", 4},     {"bfloat16", 2}, {"float16", 2},
      {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"int8", 1},     {"int16", 2},
      {"int32", 4},         {"int64", 8},       {"uint8", 1},    {"bool", 1}};
  REQUIRE(table.size() == kDTypeCount);
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const DType type = dtype_from_code(code).value();
    CHECK(name_of(type) == table[code].first);
    CHECK(size_of(type) == table[code].second);
    CHECK(dtype_from_name(table[code].first) == type);
  }
  CHECK(!dtype_from_code(kDTypeCount));
  CHECK(!dtype_from_name("float"));
  CHECK(!dtype_from_name(""));
}

TEST_CASE("epsilon is the distance from 1 to the next value") {
  for (const Format& format : kFormats) {
    CAPTURE(name_of(format.dtype));
    double next = INFINITY;
    for (unsigned code = 0; code < code_count(format); ++code) {
      const double value = value_of(format, code);
      if (value > 1 && value < next) next = value;
    }
    CHECK(epsilon(format.dtype) == next - 1);
    CHECK(is_floating(format.dtype));
  }
  CHECK(epsilon(DType::float32) == std::numeric_limits<float>::epsilon());
  CHECK(epsilon(DType::float64) == std::numeric_limits<double>::epsilon());
  for (const DType type :
       {DType::int8, DType::int16, DType::int32, DType::int64, DType::uint8, DType::boolean}) {
    CHECK(epsilon(type) == 0);
    CHECK(!is_floating(type));
  }
}
