// SPDX-License-Identifier: Apache-2.0
// The statistics of a tensor whose bytes come in pieces of any size, even cut inside an element.
// Elements are gathered into blocks by their index, and within a block summed in lanes by index:
// the result depends on the values and their order only, never on how the pieces were cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libttrace/core/dtype.hpp"
#include "libttrace/core/record.hpp"

namespace ttrace {

class StatisticsStream {
 public:
  explicit StatisticsStream(DType type = DType::float32) { reset(type); }

  void reset(DType type);
  void append(std::span<const std::byte> bytes);
  // Of all whole elements so far. Nothing may be appended afterwards.
  [[nodiscard]] Statistics finish();

 private:
  void append_elements(const std::byte* data, std::size_t count);
  void fold();

  // 1,024 doubles stay in the first-level cache, and bound the error of the sums: a block adds
  // 128 terms a lane, and blocks are then added one by one.
  static constexpr std::size_t kBlock = 1024;

  DType type_ = DType::float32;
  std::size_t element_size_ = 4;
  std::array<std::byte, 8> split_{};  // the first bytes of an element that was cut
  std::size_t split_size_ = 0;
  std::array<double, kBlock> block_;
  std::size_t filled_ = 0;
  Statistics total_;
  bool any_finite_ = false;
};

}  // namespace ttrace
