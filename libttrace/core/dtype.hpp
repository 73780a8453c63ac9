// SPDX-License-Identifier: Apache-2.0
// The element types a trace can hold, and their exact values.
// Every decoder is bit-exact and needs no library: the same functions run on the host and on the
// device, because libhdf5's own conversion is slow and wrong for float8_e4m3fn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#ifdef __CUDACC__
#define TTRACE_HD __host__ __device__
#else
#define TTRACE_HD
#endif

namespace ttrace {

// The numbers are part of the file format and of the C ABI; append only.
enum class DType : std::uint8_t {
  float64 = 0,
  float32 = 1,
  bfloat16 = 2,
  float16 = 3,
  float8_e4m3fn = 4,
  float8_e5m2 = 5,
  int8 = 6,
  int16 = 7,
  int32 = 8,
  int64 = 9,
  uint8 = 10,
  boolean = 11,
};
inline constexpr std::uint8_t kDTypeCount = 12;

[[nodiscard]] std::size_t size_of(DType type);       // bytes per element
[[nodiscard]] std::string_view name_of(DType type);  // torch's name: "bfloat16", "bool", ...
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
[[nodiscard]] std::optional<DType> dtype_from_code(std::uint8_t code);
[[nodiscard]] bool is_floating(DType type);
// Distance from 1 to the next larger value (finfo.eps: 2^-23 for float32, 2^-7 for bfloat16);
// 0 for integers, which must be equal.
[[nodiscard]] double epsilon(DType type);

// Storage wrappers give each 16- and 8-bit format a C++ type of its own.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};

TTRACE_HD inline float float_from_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// Any IEEE-like float with `Exponent` exponent bits and `Mantissa` mantissa bits, exactly.
template <int Exponent, int Mantissa>
TTRACE_HD inline float widen_ieee(std::uint32_t code) {
  constexpr std::uint32_t kMaxExponent = (1u << Exponent) - 1;
  constexpr std::uint32_t kBiasShift = 127u - ((1u << (Exponent - 1)) - 1);
  const std::uint32_t sign = (code >> (Exponent + Mantissa)) << 31;
  const std::uint32_t exponent = (code >> Mantissa) & kMaxExponent;
  const std::uint32_t mantissa = code & ((1u << Mantissa) - 1);
  if (exponent == kMaxExponent) {
    return float_from_bits(sign | 0x7f800000u | (mantissa << (23 - Mantissa)));
  }
  if (exponent != 0) {
    return float_from_bits(sign | ((exponent + kBiasShift) << 23) | (mantissa << (23 - Mantissa)));
  }
  // Subnormal: mantissa * 2^(1 - bias - Mantissa), a product of two exact floats.
  const float unit = float_from_bits((kBiasShift + 1u - Mantissa) << 23);
  const float magnitude = static_cast<float>(mantissa) * unit;
  return float_from_bits(sign | __builtin_bit_cast(std::uint32_t, magnitude));
}

// widen: the exact value, as float where float holds it, else as double (int64 beyond 2^53 rounds;
// integers are compared as integers, never through widen).
TTRACE_HD inline double widen(double value) { return value; }
TTRACE_HD inline float widen(float value) { return value; }
TTRACE_HD inline float widen(BFloat16 value) {
  return float_from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}
TTRACE_HD inline float widen(Float16 value) { return widen_ieee<5, 10>(value.bits); }
TTRACE_HD inline float widen(Float8E5M2 value) { return widen_ieee<5, 2>(value.bits); }
// "fn": no infinities; exponent 15 is ordinary (256..448) except mantissa 7, which is NaN.
TTRACE_HD inline float widen(Float8E4M3 value) {
  const std::uint32_t sign = (value.bits & 0x80u) << 24;
  const std::uint32_t exponent = (value.bits >> 3) & 15u;
  const std::uint32_t mantissa = value.bits & 7u;
  if ((value.bits & 0x7fu) == 0x7fu) return float_from_bits(sign | 0x7fc00000u);
  if (exponent != 0) return float_from_bits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return float_from_bits(sign | __builtin_bit_cast(std::uint32_t, magnitude));
}
TTRACE_HD inline float widen(std::int8_t value) { return value; }
TTRACE_HD inline float widen(std::int16_t value) { return value; }
TTRACE_HD inline double widen(std::int32_t value) { return value; }
TTRACE_HD inline double widen(std::int64_t value) { return static_cast<double>(value); }
TTRACE_HD inline float widen(std::uint8_t value) { return value; }
TTRACE_HD inline float widen(bool value) { return value ? 1.0f : 0.0f; }

// Calls visitor(T{}) with the storage type of `type`; the one place that maps codes to C++ types.
template <class Visitor>
decltype(auto) visit_dtype(DType type, Visitor&& visitor) {
  switch (type) {
    case DType::float64:
      return visitor(double{});
    case DType::float32:
      return visitor(float{});
    case DType::bfloat16:
      return visitor(BFloat16{});
    case DType::float16:
      return visitor(Float16{});
    case DType::float8_e4m3fn:
      return visitor(Float8E4M3{});
    case DType::float8_e5m2:
      return visitor(Float8E5M2{});
    case DType::int8:
      return visitor(std::int8_t{});
    case DType::int16:
      return visitor(std::int16_t{});
    case DType::int32:
      return visitor(std::int32_t{});
    case DType::int64:
      return visitor(std::int64_t{});
    case DType::uint8:
      return visitor(std::uint8_t{});
    case DType::boolean:
      return visitor(bool{});
  }
  __builtin_unreachable();
}

// The exact value of element `index` of a packed array of `type`, as double.
[[nodiscard]] double decode(DType type, const std::byte* data, std::size_t index);
// Stores the nearest value of a floating `type`, ties to even. What is too large becomes infinite,
// or NaN in a type without infinities.
void encode(DType type, double value, std::byte* data, std::size_t index);

}  // namespace ttrace
