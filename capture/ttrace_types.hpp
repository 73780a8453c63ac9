// SPDX-License-Identifier: Apache-2.0
// Part of ttrace.hpp, which programs include: results, the dtypes of C++ types, shapes.
#ifndef TTRACE_TYPES_HPP
#define TTRACE_TYPES_HPP

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "ttrace.h"

namespace ttrace {
inline namespace api {

// ---- what a call returned ----

class Error : public std::system_error {
 public:
  Error(int error, const std::string& what)
      : std::system_error(error, std::generic_category(), what) {}
};

class Result {
 public:
  explicit Result(std::int64_t value) noexcept : value_(value) {
    if (!failed()) return;
    try {
      message_ = ttrace_last_error();
    } catch (...) {  // no memory for words, the number is there
    }
  }
  Result(std::int64_t value, std::string message) noexcept
      : value_(value), message_(std::move(message)) {}
  // Of a record, its sequence number; of feed, whether it wrote; negative: -errno.
  [[nodiscard]] std::int64_t value() const noexcept { return value_; }
  [[nodiscard]] bool done() const noexcept { return value_ >= 0; }
  // That nothing is captured, or not this, is no failure.
  [[nodiscard]] bool failed() const noexcept {
    return value_ < 0 && value_ != -ENOTCONN && value_ != -ENOENT;
  }
  [[nodiscard]] int error() const noexcept { return value_ < 0 ? static_cast<int>(-value_) : 0; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  // For who wants failures to end the program.
  const Result& check() const {
    if (failed()) throw Error(error(), message_);
    return *this;
  }

 private:
  std::int64_t value_;
  std::string message_;
};

[[nodiscard]] inline bool active() noexcept { return ttrace_active() != 0; }

// ---- element types ----

template <ttrace_dtype Code>
using dtype_constant = std::integral_constant<ttrace_dtype, Code>;

// The dtype of a C++ type. Of one's own: template <> struct ttrace::dtype_of<my_bfloat16> :
// ttrace::dtype_constant<TTRACE_BFLOAT16> {};
template <class T, class = void>
struct dtype_of {
  static_assert(!std::is_same_v<T, T>,
                "pass the dtype of this type, or specialise dtype_of; of unsigned integers (token "
                "ids) the signed type of the same size, which keeps the bits: TTRACE_INT32");
};
template <>
struct dtype_of<double> : dtype_constant<TTRACE_FLOAT64> {};
template <>
struct dtype_of<float> : dtype_constant<TTRACE_FLOAT32> {};
template <>
struct dtype_of<bool> : dtype_constant<TTRACE_BOOL> {};
template <>
struct dtype_of<std::uint8_t> : dtype_constant<TTRACE_UINT8> {};
template <class T>  // char, long and long long, too
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && std::is_signed_v<T>>>
    : dtype_constant<sizeof(T) == 1   ? TTRACE_INT8
                     : sizeof(T) == 2 ? TTRACE_INT16
                     : sizeof(T) == 4 ? TTRACE_INT32
                                      : TTRACE_INT64> {};
#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct dtype_of<__half> : dtype_constant<TTRACE_FLOAT16> {};
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct dtype_of<__nv_bfloat16> : dtype_constant<TTRACE_BFLOAT16> {};
#endif

// ---- shapes ----

// {} is a scalar's; from integers of any type, or from a container of them.
class Extents {
 public:
  Extents() = default;
  template <class... Integers,
            class = std::enable_if_t<(sizeof...(Integers) > 0) &&
                                     (std::is_integral_v<std::decay_t<Integers>> && ...)>>
  Extents(Integers... extents) {
    (add(static_cast<std::uint64_t>(extents)), ...);
  }
  template <class Range, class = decltype(std::begin(std::declval<const Range&>())), class = void>
  Extents(const Range& extents) {
    for (const auto extent : extents) add(static_cast<std::uint64_t>(extent));
  }
  [[nodiscard]] const std::uint64_t* data() const noexcept { return extents_.data(); }
  [[nodiscard]] std::uint8_t dimensions() const noexcept { return dimensions_; }
  [[nodiscard]] std::uint64_t elements() const noexcept {
    std::uint64_t count = 1;
    for (std::size_t i = 0; i < dimensions_ && i < kMost; ++i) count *= extents_[i];
    return count;
  }

 private:
  static constexpr std::size_t kMost = 16;
  void add(std::uint64_t extent) noexcept {
    if (dimensions_ < kMost) extents_[dimensions_] = extent;
    if (dimensions_ <= kMost) ++dimensions_;  // 17 is refused with words
  }

  std::array<std::uint64_t, kMost> extents_{};
  std::uint8_t dimensions_ = 0;
};

}  // namespace api
}  // namespace ttrace

#endif  // TTRACE_TYPES_HPP
