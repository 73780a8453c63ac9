// SPDX-License-Identifier: Apache-2.0
// Two loops: widen a run of any element type into doubles, and fold a block of doubles. The writer
// does this to every byte it stores and must keep up with the disk, so the common types go in
// vectors of 16 bytes (an extension of g++ and clang, one instruction on every 64-bit processor).
// All conversions are exact.
#include "libttrace/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kRow = 8;  // elements that are handled together
using Lanes = std::array<double, kRow>;

template <class Element, std::size_t Count>
struct Vector {
  typedef Element Type __attribute__((vector_size(Count * sizeof(Element))));
};
using Double2 = Vector<double, 2>::Type;
using Float2 = Vector<float, 2>::Type;
using Float4 = Vector<float, 4>::Type;
using Word4 = Vector<std::uint32_t, 4>::Type;
using Half8 = Vector<std::uint16_t, 8>::Type;

template <class To>
To bits_of(const void* from) {
  To to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

void widen_floats(Float4 values, double* out) {
  const Double2 low = __builtin_convertvector(bits_of<Float2>(&values), Double2);
  const auto* rest = reinterpret_cast<const char*>(&values) + sizeof(Float2);
  const Double2 high = __builtin_convertvector(bits_of<Float2>(rest), Double2);
  std::memcpy(out, &low, sizeof low);
  std::memcpy(out + 2, &high, sizeof high);
}

// As widen(Float16), on the 16 bits at the top of each word and with choices instead of branches:
// the exponent moves from bias 15 to 127; below the normal codes that is 2^-14 too much, and the
// codes at the top go to the top again.
Float4 floats_of_halves(Word4 words) {
  constexpr std::uint32_t kExponent = 31u << 23;
  constexpr std::uint32_t kRebias = 112u << 23;
  const Word4 magnitude = (words & 0x7fff0000u) >> 3;
  const Word4 exponent = magnitude & kExponent;
  const Word4 normal = magnitude + kRebias;
  const Word4 with_one = normal + (1u << 23);
  const Float4 subnormal = bits_of<Float4>(&with_one) - 0x1p-14f;
  Word4 bits = exponent == kExponent ? normal + kRebias : normal;
  bits = exponent == 0u ? bits_of<Word4>(&subnormal) : bits;
  bits |= words & 0x80000000u;
  return bits_of<Float4>(&bits);
}

// Eight 16-bit codes, each at the top of a word of its own.
template <class Storage>
void widen_halves(const std::byte* data, double* out) {
  const Half8 codes = bits_of<Half8>(data);
  constexpr Half8 kZero{};
  const Half8 words[] = {__builtin_shufflevector(kZero, codes, 0, 8, 1, 9, 2, 10, 3, 11),
                         __builtin_shufflevector(kZero, codes, 4, 12, 5, 13, 6, 14, 7, 15)};
  for (std::size_t i = 0; i < 2; ++i) {
    const Float4 values = std::is_same_v<Storage, BFloat16>
                              ? bits_of<Float4>(&words[i])
                              : floats_of_halves(bits_of<Word4>(&words[i]));
    widen_floats(values, out + 4 * i);
  }
}

template <class Storage>
double value_of(const std::byte* data) {
  if constexpr (std::is_same_v<Storage, bool>) {
    return *data == std::byte{0} ? 0.0 : 1.0;  // any non-zero byte is true
  } else {
    return static_cast<double>(widen(bits_of<Storage>(data)));
  }
}

template <class Storage>
const std::array<double, 256>& value_table() {
  static const std::array<double, 256> table = [] {
    std::array<double, 256> values;
    for (std::size_t code = 0; code < values.size(); ++code) {
      const auto byte = static_cast<std::byte>(code);
      values[code] = value_of<Storage>(&byte);
    }
    return values;
  }();
  return table;
}

template <class Storage>
void widen_run(const std::byte* data, std::size_t count, double* out) {
  std::size_t i = 0;
  if constexpr (std::is_same_v<Storage, float>) {
    for (; i + 4 <= count; i += 4) widen_floats(bits_of<Float4>(data + i * 4), out + i);
  } else if constexpr (std::is_same_v<Storage, BFloat16> || std::is_same_v<Storage, Float16>) {
    for (; i + kRow <= count; i += kRow) widen_halves<Storage>(data + i * 2, out + i);
  } else if constexpr (sizeof(Storage) == 1) {
    const std::array<double, 256>& table = value_table<Storage>();
    for (; i < count; ++i) out[i] = table[static_cast<std::uint8_t>(data[i])];
  }
  for (; i < count; ++i) out[i] = value_of<Storage>(data + i * sizeof(Storage));
}

struct Folded {
  Lanes sum;  // of squares
  Lanes low;
  Lanes high;
  Lanes probe;  // 0, or NaN in a lane that met an infinity or a NaN
};

// `count` is a multiple of a row.
void fold_rows(const double* values, std::size_t count, Folded& out) {
  constexpr std::size_t kVectors = kRow / 2;
  Double2 sum[kVectors]{};
  Double2 probe[kVectors]{};
  Double2 low[kVectors];
  Double2 high[kVectors];
  std::memcpy(low, values, sizeof low);
  std::memcpy(high, values, sizeof high);
  for (std::size_t i = 0; i < count; i += kRow) {
    const auto fold = [&](std::size_t n) {
      const auto value = bits_of<Double2>(values + i + 2 * n);
      sum[n] += value * value;
      probe[n] += value * 0.0;
      low[n] = value < low[n] ? value : low[n];
      high[n] = value > high[n] ? value : high[n];
    };
    [&]<std::size_t... N>(std::index_sequence<N...>) {  // unrolled, or the sums live in memory
      (fold(N), ...);
    }
    (std::make_index_sequence<kVectors>());
  }
  std::memcpy(out.sum.data(), sum, sizeof sum);
  std::memcpy(out.low.data(), low, sizeof low);
  std::memcpy(out.high.data(), high, sizeof high);
  std::memcpy(out.probe.data(), probe, sizeof probe);
}

// A fixed tree, so that the order of additions is part of the definition.
double sum_of(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
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

// Fills the last row up with `value`; returns the count of whole rows' elements.
std::size_t fill_row(double* values, std::size_t count, double value) {
  const std::size_t padded = (count + kRow - 1) / kRow * kRow;
  std::fill(values + count, values + padded, value);
  return padded;
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
    visit_dtype(type_, [&](auto storage) {
      widen_run<decltype(storage)>(data, take, block_.data() + filled_);
    });
    filled_ += take;
    data += take * element_size_;
    count -= take;
    if (filled_ == kBlock) fold();
  }
}

void StatisticsStream::fold() {
  double* values = block_.data();
  std::size_t count = filled_;
  filled_ = 0;
  if (count == 0) return;

  // Zeros add nothing to the squares, but they are no values: the extremes come without them.
  Folded folded;
  fold_rows(values, fill_row(values, count, 0.0), folded);
  if (sum_of(folded.probe) != 0) {
    count = sort_out(values, count, total_);
    if (count == 0) return;
    fold_rows(values, fill_row(values, count, 0.0), folded);
  }
  total_.sum_squares += sum_of(folded.sum);
  if (count % kRow != 0) fold_rows(values, fill_row(values, count, values[0]), folded);
  any_finite_ = true;
  total_.min = std::min(total_.min, *std::min_element(folded.low.begin(), folded.low.end()));
  total_.max = std::max(total_.max, *std::max_element(folded.high.begin(), folded.high.end()));
}

Statistics StatisticsStream::finish() {
  fold();
  if (!any_finite_) total_.min = total_.max = 0;
  return total_;
}

}  // namespace ttrace
