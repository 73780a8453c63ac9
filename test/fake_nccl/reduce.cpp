// SPDX-License-Identifier: Apache-2.0
// See reduce.hpp.
#include "test/fake_nccl/reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace fake {
namespace {

// `visit` is called with a value of the type's C++ type.
template <class Visitor>
void with_type(ncclDataType_t type, const Visitor& visit) {
  switch (type) {
    case ncclInt8:
      return visit(std::int8_t{});
    case ncclUint8:
      return visit(std::uint8_t{});
    case ncclInt32:
      return visit(std::int32_t{});
    case ncclUint32:
      return visit(std::uint32_t{});
    case ncclInt64:
      return visit(std::int64_t{});
    case ncclUint64:
      return visit(std::uint64_t{});
    case ncclFloat16:
      return visit(__half{});
    case ncclFloat32:
      return visit(float{});
    case ncclFloat64:
      return visit(double{});
    case ncclBfloat16:
      return visit(__nv_bfloat16{});
    case ncclFloat8e4m3:
      return visit(__nv_fp8_e4m3{});
    case ncclFloat8e5m2:
      return visit(__nv_fp8_e5m2{});
    default:
      return;
  }
}

// What a type is computed in: itself, or float for the narrow ones.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
Wide<T> load(const char* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return static_cast<Wide<T>>(value);
}

template <class T>
Wide<T> rounded(Wide<T> value) {
  return static_cast<Wide<T>>(T(value));
}

template <class W>
W combine(W a, W b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return static_cast<W>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<W>(a + b);
  }
}

template <class T>
void reduce_as(const std::vector<const char*>& members, char* to, std::size_t count,
               const Reduction& reduction) {
  using W = Wide<T>;
  const auto input = [&](std::size_t member, std::size_t index) {
    const W value = load<T>(members[member], index);
    return reduction.scaled ? rounded<T>(static_cast<W>(value * static_cast<W>(reduction.factor)))
                            : value;
  };
  for (std::size_t i = 0; i < count; ++i) {
    W sum = input(0, i);
    for (std::size_t member = 1; member < members.size(); ++member) {
      sum = rounded<T>(combine(sum, input(member, i), reduction.op));
    }
    if (reduction.op == ncclAvg) sum = static_cast<W>(sum / static_cast<W>(members.size()));
    const T result = T(sum);
    std::memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

double number_at(const void* scalar, ncclDataType_t type) {
  double number = 0;
  with_type(type, [&](auto value) {
    number = static_cast<double>(load<decltype(value)>(static_cast<const char*>(scalar), 0));
  });
  return number;
}

void reduce(const std::vector<const char*>& members, char* to, std::size_t count,
            ncclDataType_t type, const Reduction& reduction) {
  with_type(type, [&](auto value) { reduce_as<decltype(value)>(members, to, count, reduction); });
}

}  // namespace fake
