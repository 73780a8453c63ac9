// SPDX-License-Identifier: Apache-2.0
// Names, sizes and epsilons of the element types: one table row a type.
#include "libttrace/core/dtype.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace ttrace {
namespace {

struct Row {
  std::string_view name;
  std::size_t size;
  double epsilon;
};

// Indexed by the code of DType.
constexpr std::array<Row, kDTypeCount> kRows{{
    {"float64", 8, 0x1p-52},
    {"float32", 4, 0x1p-23},
    {"bfloat16", 2, 0x1p-7},
    {"float16", 2, 0x1p-10},
    {"float8_e4m3fn", 1, 0x1p-3},
    {"float8_e5m2", 1, 0x1p-2},
    {"int8", 1, 0},
    {"int16", 2, 0},
    {"int32", 4, 0},
    {"int64", 8, 0},
    {"uint8", 1, 0},
    {"bool", 1, 0},
}};

const Row& row(DType type) { return kRows.at(static_cast<std::size_t>(type)); }

// The code of the nearest value of a float with these numbers of bits. `largest` is the code of the
// largest finite value, `beyond` that of what is larger.
struct SmallFloat {
  int exponent;
  int mantissa;
  std::uint32_t largest;
  std::uint32_t beyond;
  std::uint32_t nan;
};

std::uint32_t nearest_code(double value, const SmallFloat& format) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (format.exponent + format.mantissa) : 0;
  if (std::isnan(value)) return sign | format.nan;
  if (std::isinf(value)) return sign | format.beyond;
  if (value == 0) return sign;
  int exponent = 0;
  (void)std::frexp(value, &exponent);  // |value| is in [2^(exponent - 1), 2^exponent)
  const int bias = (1 << (format.exponent - 1)) - 1;
  // 1 for subnormal values, too: they have the unit of the smallest normal ones.
  const int biased = std::max(exponent - 1 + bias, 1);
  if (biased >= 1 << format.exponent) return sign | format.beyond;
  const double units =
      std::nearbyint(std::ldexp(std::fabs(value), bias + format.mantissa - biased));
  // A mantissa that was rounded up to a power of two carries into the exponent.
  const std::uint32_t code = (static_cast<std::uint32_t>(biased - 1) << format.mantissa) +
                             static_cast<std::uint32_t>(units);
  return sign | (code > format.largest ? format.beyond : code);
}

// By storage type.
constexpr SmallFloat small_float(BFloat16) { return {8, 7, 0x7f7f, 0x7f80, 0x7fc0}; }
constexpr SmallFloat small_float(Float16) { return {5, 10, 0x7bff, 0x7c00, 0x7e00}; }
constexpr SmallFloat small_float(Float8E4M3) { return {4, 3, 0x7e, 0x7f, 0x7f}; }
constexpr SmallFloat small_float(Float8E5M2) { return {5, 2, 0x7b, 0x7c, 0x7e}; }

}  // namespace

std::size_t size_of(DType type) { return row(type).size; }
std::string_view name_of(DType type) { return row(type).name; }
bool is_floating(DType type) { return row(type).epsilon != 0; }
double epsilon(DType type) { return row(type).epsilon; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t code = 0; code < kRows.size(); ++code) {
    if (kRows[code].name == name) return static_cast<DType>(code);
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_code(std::uint8_t code) {
  if (code >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(code);
}

double decode(DType type, const std::byte* data, std::size_t index) {
  return visit_dtype(type, [&](auto storage) -> double {
    using Storage = decltype(storage);
    if constexpr (std::is_same_v<Storage,
                                 bool>) {  // any non-zero byte is true; never load a bad bool
      return data[index] == std::byte{0} ? 0.0 : 1.0;
    } else {
      std::memcpy(&storage, data + index * sizeof storage, sizeof storage);
      return static_cast<double>(widen(storage));
    }
  });
}

void encode(DType type, double value, std::byte* data, std::size_t index) {
  visit_dtype(type, [&](auto storage) {
    using Storage = decltype(storage);
    if constexpr (std::is_floating_point_v<Storage>) {
      storage = static_cast<Storage>(value);
    } else if constexpr (!std::is_integral_v<Storage>) {
      storage.bits = static_cast<decltype(storage.bits)>(nearest_code(value, small_float(storage)));
    }
    std::memcpy(data + index * sizeof storage, &storage, sizeof storage);
  });
}

}  // namespace ttrace
