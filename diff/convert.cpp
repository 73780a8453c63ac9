// SPDX-License-Identifier: Apache-2.0
// See convert.hpp.
#include "diff/convert.hpp"

#include <cstring>
#include <type_traits>

namespace ttrace {
namespace {

// bool's bytes are taken as they are: a stray 2 must not be undefined behaviour.
template <class T>
using Storage = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T, class Use>
void each_element(const std::byte* data, std::uint64_t count, Use use) {
  for (std::uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    use(i, value);
  }
}

template <class To>
void convert_to(DType from, const std::byte* data, std::uint64_t count, std::byte* out) {
  visit_dtype(from, [&](auto sample) {
    using From = Storage<decltype(sample)>;
    each_element<From>(data, count, [out](std::uint64_t i, From value) {
      To converted;
      if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
        converted = static_cast<To>(value);
      } else {
        converted = static_cast<To>(widen(value));
      }
      std::memcpy(out + i * sizeof(To), &converted, sizeof(To));
    });
  });
}

}  // namespace

std::optional<DType> common_type(DType reference, DType candidate) {
  if (reference == candidate) return reference;
  if (is_floating(reference) != is_floating(candidate)) return std::nullopt;
  if (!is_floating(reference)) return DType::int64;
  const bool wide = reference == DType::float64 || candidate == DType::float64;
  return wide ? DType::float64 : DType::float32;
}

DType sum_type(DType type) {
  if (!is_floating(type)) return DType::int64;
  return type == DType::float64 ? DType::float64 : DType::float32;
}

void convert(DType from, const std::byte* data, std::uint64_t count, DType to, std::byte* out) {
  if (to == DType::int64) return convert_to<std::int64_t>(from, data, count, out);
  if (to == DType::float64) return convert_to<double>(from, data, count, out);
  convert_to<float>(from, data, count, out);
}

void add_as_double(DType from, const std::byte* data, std::uint64_t count, double* into) {
  visit_dtype(from, [&](auto sample) {
    using From = Storage<decltype(sample)>;
    each_element<From>(data, count, [into](std::uint64_t i, From value) {
      into[i] += static_cast<double>(widen(value));
    });
  });
}

}  // namespace ttrace
