// SPDX-License-Identifier: Apache-2.0
// Two loops: widen a run of any element type into doubles, and fold a block of doubles. The second
// is written in lanes that the compiler turns into vector instructions.
#include "libttrace/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ttrace {
namespace {

constexpr std::size_t kLanes = 8;
using Lanes = std::array<double, kLanes>;

void widen_run(DType type, const std::byte* data, std::size_t count, double* out) {
  visit_dtype(type, [&](auto storage) {
    using Storage = decltype(storage);
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Storage, bool>) {  // any non-zero byte is true
        out[i] = data[i] == std::byte{0} ? 0.0 : 1.0;
      } else {
        Storage value;
        std::memcpy(&value, data + i * sizeof value, sizeof value);
        out[i] = static_cast<double>(widen(value));
      }
    }
  });
}

// A fixed tree, so that the order of additions is part of the definition.
double sum_of(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

bool all_finite(const double* values, std::size_t count) {
  Lanes probe{};
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) probe[lane] += values[i + lane] * 0.0;
  }
  return sum_of(probe) == 0;  // infinities and NaN became NaN
}

// Takes the non-finite values out, into the counts; returns how many are left.
std::size_t sort_out(double* values, std::size_t count, Statistics& total) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) {
      values[kept++] = values[i];
    } else if (std::isnan(values[i])) {
      ++total.nan_count;
    } else {
      ++total.inf_count;
    }
  }
  return kept;
}

}  // namespace

void StatisticsStream::reset(DType type) {
  type_ = type;
  element_size_ = size_of(type);
  split_size_ = 0;
  filled_ = 0;
  any_finite_ = false;
  total_ = {};
  total_.min = std::numeric_limits<double>::infinity();
  total_.max = -std::numeric_limits<double>::infinity();
}

void StatisticsStream::append(std::span<const std::byte> bytes) {
  if (split_size_ != 0) {
    const std::size_t take = std::min(element_size_ - split_size_, bytes.size());
    std::copy_n(bytes.data(), take, split_.data() + split_size_);
    split_size_ += take;
    bytes = bytes.subspan(take);
    if (split_size_ < element_size_) return;
    append_elements(split_.data(), 1);
    split_size_ = 0;
  }
  const std::size_t whole = bytes.size() / element_size_;
  append_elements(bytes.data(), whole);
  bytes = bytes.subspan(whole * element_size_);
  std::copy_n(bytes.data(), bytes.size(), split_.data());
  split_size_ = bytes.size();
}

void StatisticsStream::append_elements(const std::byte* data, std::size_t count) {
  while (count != 0) {
    const std::size_t take = std::min(count, kBlock - filled_);
    widen_run(type_, data, take, block_.data() + filled_);
    filled_ += take;
    data += take * element_size_;
    count -= take;
    if (filled_ == kBlock) fold();
  }
}

void StatisticsStream::fold() {
  std::size_t count = filled_;
  filled_ = 0;
  const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;  // zeros, for the probe only
  std::fill(block_.begin() + static_cast<std::ptrdiff_t>(count),
            block_.begin() + static_cast<std::ptrdiff_t>(padded), 0.0);
  if (!all_finite(block_.data(), padded)) count = sort_out(block_.data(), count, total_);
  if (count == 0) return;
  any_finite_ = true;

  const std::size_t rows = count / kLanes * kLanes;
  Lanes sum{};
  Lanes low;
  Lanes high;
  low.fill(block_[0]);
  high.fill(block_[0]);
  for (std::size_t i = 0; i < rows; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = block_[i + lane];
      sum[lane] += value * value;
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
    }
  }
  for (std::size_t i = rows; i < count; ++i) {
    sum[i - rows] += block_[i] * block_[i];
    low[0] = std::min(low[0], block_[i]);
    high[0] = std::max(high[0], block_[i]);
  }
  total_.sum_squares += sum_of(sum);
  total_.min = std::min(total_.min, *std::min_element(low.begin(), low.end()));
  total_.max = std::max(total_.max, *std::max_element(high.begin(), high.end()));
}

Statistics StatisticsStream::finish() {
  fold();
  if (!any_finite_) total_.min = total_.max = 0;
  return total_;
}

}  // namespace ttrace
