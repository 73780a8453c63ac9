// SPDX-License-Identifier: Apache-2.0
// Names, sizes and epsilons of the element types: one table row a type.
#include "libttrace/core/dtype.hpp"

#include <array>
#include <cstring>

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

}  // namespace ttrace
