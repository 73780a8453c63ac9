// SPDX-License-Identifier: Apache-2.0
// See reduction.hpp.
#include "invariant/builtin/collective/reduction.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kTile = 65536;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One tile of what a floating reduction should give.
class FloatTile {
 public:
  FloatTile(const std::string& reduction, double factor, std::size_t inputs, DType type)
      : reduction_(reduction), type_(type) {
    const auto n = static_cast<double>(inputs);
    scaled_ = reduction == "avg" || reduction == "premul_sum";
    factor_ = reduction == "avg" ? 1 / n : reduction == "premul_sum" ? factor : 1;
    const double steps = n - 1 + (scaled_ ? 2 : 0);
    // The second term is for the sums that are made here.
    growth_ = std::expm1(steps * std::log1p(epsilon(type) / 2)) + (n + 2) * 0x1p-53;
    floor_ = (n + 2) * smallest_of(type);
  }

  void start(std::uint64_t count) {
    value_.assign(count, reduction_ == "prod" ? 1 : 0);
    weight_.assign(count, reduction_ == "prod" ? 1 : 0);
    above_.assign(count, 1);
    odd_.assign(count, false);
    empty_ = true;
  }

  void add(const std::vector<double>& input) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      const double x = input[i];
      if (!std::isfinite(x)) odd_[i] = true;
      if (reduction_ == "min") {
        value_[i] = empty_ ? x : std::min(value_[i], x);
      } else if (reduction_ == "max") {
        value_[i] = empty_ ? x : std::max(value_[i], x);
      } else if (reduction_ == "prod") {
        value_[i] *= x;
        weight_[i] *= std::min(1.0, std::abs(x));
        above_[i] *= std::max(1.0, std::abs(x));
      } else {
        value_[i] += x;
        weight_[i] += std::abs(x);
      }
    }
    empty_ = false;
  }

  [[nodiscard]] double expected(std::size_t i) const { return value_[i] * factor_; }
  // Error of the output in units of its limit; nullopt: it may be anything.
  [[nodiscard]] std::optional<double> error(std::size_t i, double found) const {
    if (reduction_ == "min" || reduction_ == "max") return extreme_error(i, found);
    if (odd_[i]) return reduction_ == "prod" || !std::isfinite(found) ? 0 : kInfinity;
    const double limit = limit_of(i);
    if (limit < 0) return std::nullopt;
    if (!std::isfinite(found)) return kInfinity;
    const double error = std::abs(found - expected(i));
    return error == 0 ? 0 : limit == 0 ? kInfinity : error / limit;
  }

 private:
  [[nodiscard]] std::optional<double> extreme_error(std::size_t i, double found) const {
    // What becomes of NaN differs between libraries. Infinities are values like others.
    if (odd_[i] && std::isnan(value_[i])) return std::nullopt;
    if (odd_[i] && std::isnan(found)) return std::nullopt;
    return found == value_[i] ? 0 : kInfinity;
  }

  // -1: sums in between may leave the range of the type.
  [[nodiscard]] double limit_of(std::size_t i) const {
    if (reduction_ == "prod") {
      if (value_[i] == 0 && weight_[i] == 0 && above_[i] <= largest_of(type_)) return floor_;
      if (weight_[i] < smallest_normal() || above_[i] > largest_of(type_)) return -1;
      return std::abs(value_[i]) * growth_ + floor_;
    }
    if (weight_[i] * (1 + growth_) > largest_of(type_)) return -1;
    const double weight = weight_[i] * std::abs(factor_);
    if (weight * (1 + growth_) > largest_of(type_)) return -1;
    return weight * growth_ + (scaled_ ? floor_ * std::max(1.0, std::abs(factor_)) : floor_);
  }
  [[nodiscard]] double smallest_normal() const {
    const bool small = size_of(type_) == 1 || type_ == DType::float16;
    return small ? smallest_of(type_) / epsilon(type_) : smallest_of(type_);
  }

  std::string reduction_;
  DType type_;
  bool scaled_ = false;
  double factor_ = 1;
  double growth_ = 0;
  double floor_ = 0;
  bool empty_ = true;
  std::vector<double> value_, weight_, above_;
  std::vector<bool> odd_;  // some input is not finite
};

// Sums over a whole tensor that tell what kind of error it is.
struct Moments {
  double dot = 0, norm = 0, error = 0;
  std::vector<double> without, again;  // squared errors without an input, or with it once more

  void add(double expected, double found) {
    if (!std::isfinite(expected) || !std::isfinite(found)) return;
    dot += expected * found;
    norm += expected * expected;
    error += (found - expected) * (found - expected);
  }
  void explain(Reduced& result) const {
    if (norm > 0) result.factor = dot / norm;
    for (std::size_t i = 0; i < without.size(); ++i) {
      if (without[i] < error * 1e-4) result.left_out = i;
      if (again[i] < error * 1e-4) result.twice = i;
    }
  }
};

void judge_tile(const FloatTile& tile, const std::vector<double>& found, std::uint64_t start,
                Reduced& result, Moments& moments) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = tile.expected(i);
    moments.add(expected, found[i]);
    const std::optional<double> error = tile.error(i, found[i]);
    if (!error) {
      ++result.undecided;
      continue;
    }
    result.worst = std::max(result.worst, *error);
    if (*error <= 1) continue;
    if (result.wrong++ > 0) continue;
    result.first = start + i;
    result.expected = expected;
    result.found = found[i];
  }
}

constexpr std::size_t kExplained = 64;  // inputs that are tried one by one

void try_inputs(std::vector<ElementReader>& readers, const FloatTile& tile,
                const std::vector<double>& found, std::uint64_t start, double factor,
                Moments& moments) {
  moments.without.resize(readers.size());
  moments.again.resize(readers.size());
  std::vector<double> input;
  for (std::size_t k = 0; k < readers.size(); ++k) {
    readers[k].read(start, found.size(), input);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double off = found[i] - tile.expected(i);
      if (!std::isfinite(off)) continue;
      const double part = factor * input[i];
      moments.without[k] += (off + part) * (off + part);
      moments.again[k] += (off - part) * (off - part);
    }
  }
}

Reduced compare_floats(const std::vector<Part>& inputs, const Part& output,
                       const std::string& reduction, double factor, bool explain) {
  Reduced result;
  result.elements = output.count;
  std::vector<ElementReader> readers(inputs.begin(), inputs.end());
  ElementReader out(output);
  FloatTile tile(reduction, factor, inputs.size(), output.record->dtype);
  Moments moments;
  const double each = reduction == "avg"          ? 1 / static_cast<double>(inputs.size())
                      : reduction == "premul_sum" ? factor
                                                  : 1;
  std::vector<double> values;
  for (std::uint64_t start = 0; start < output.count; start += kTile) {
    const std::uint64_t count = std::min(kTile, output.count - start);
    tile.start(count);
    for (ElementReader& reader : readers) {
      reader.read(start, count, values);
      tile.add(values);
    }
    out.read(start, count, values);
    judge_tile(tile, values, start, result, moments);
    if (explain) try_inputs(readers, tile, values, start, each, moments);
  }
  moments.explain(result);
  return result;
}

std::int64_t narrowed(DType type, std::uint64_t value) {
  switch (type) {
    case DType::int8:
      return static_cast<std::int8_t>(value);
    case DType::int16:
      return static_cast<std::int16_t>(value);
    case DType::int32:
      return static_cast<std::int32_t>(value);
    case DType::uint8:
      return static_cast<std::uint8_t>(value);
    case DType::boolean:
      return value != 0;
    default:
      return static_cast<std::int64_t>(value);
  }
}

// On truth values sums are "or", whatever library adds them.
std::string boolean_reduction(const std::string& reduction) {
  if (reduction == "sum" || reduction == "max") return "bor";
  if (reduction == "prod" || reduction == "min") return "band";
  return reduction;
}

bool apply(const std::string& reduction, std::uint64_t& to, std::int64_t value, bool first) {
  const auto bits = static_cast<std::uint64_t>(value);
  const auto so_far = static_cast<std::int64_t>(to);
  if (first) {
    to = bits;
  } else if (reduction == "sum" || reduction == "avg") {
    to += bits;
  } else if (reduction == "prod") {
    to *= bits;
  } else if (reduction == "min") {
    to = static_cast<std::uint64_t>(std::min(so_far, value));
  } else if (reduction == "max") {
    to = static_cast<std::uint64_t>(std::max(so_far, value));
  } else if (reduction == "band") {
    to &= bits;
  } else if (reduction == "bor") {
    to |= bits;
  } else if (reduction == "bxor") {
    to ^= bits;
  } else {
    return false;
  }
  return true;
}

// A mean of integers drops what is behind the point, one way or the other.
bool right(DType type, const std::string& reduction, std::uint64_t value, std::int64_t found,
           std::size_t inputs) {
  if (reduction != "avg") return narrowed(type, value) == found;
  const auto sum = static_cast<double>(static_cast<std::int64_t>(value));
  const auto n = static_cast<double>(inputs);
  return std::abs(static_cast<double>(found) * n - sum) < n + std::abs(sum) * 0x1p-50;
}

std::optional<Reduced> compare_integers(const std::vector<Part>& inputs, const Part& output,
                                        std::string reduction) {
  const DType type = output.record->dtype;
  if (type == DType::boolean) reduction = boolean_reduction(reduction);
  std::uint64_t probe = 0;
  if (!apply(reduction, probe, 0, false)) return std::nullopt;
  Reduced result;
  result.elements = output.count;
  std::vector<ElementReader> readers(inputs.begin(), inputs.end());
  ElementReader out(output);
  std::vector<std::uint64_t> expected;
  std::vector<std::int64_t> values;
  for (std::uint64_t start = 0; start < output.count; start += kTile) {
    const std::uint64_t count = std::min(kTile, output.count - start);
    expected.assign(count, 0);
    for (std::size_t k = 0; k < readers.size(); ++k) {
      readers[k].read(start, count, values);
      for (std::size_t i = 0; i < count; ++i) apply(reduction, expected[i], values[i], k == 0);
    }
    out.read(start, count, values);
    for (std::size_t i = 0; i < count; ++i) {
      if (right(type, reduction, expected[i], values[i], inputs.size())) continue;
      result.worst = kInfinity;
      if (result.wrong++ > 0) continue;
      result.first = start + i;
      result.expected = static_cast<double>(narrowed(type, expected[i]));
      if (reduction == "avg") result.expected /= static_cast<double>(inputs.size());
      result.found = static_cast<double>(values[i]);
    }
  }
  return result;
}

}  // namespace

double largest_of(DType type) {
  switch (type) {
    case DType::float64:
      return std::numeric_limits<double>::max();
    case DType::float32:
      return std::numeric_limits<float>::max();
    case DType::bfloat16:
      return 0x1.fep127;
    case DType::float16:
      return 65504;
    case DType::float8_e4m3fn:
      return 448;
    case DType::float8_e5m2:
      return 57344;
    default:
      return 0;
  }
}

double smallest_of(DType type) {
  switch (type) {
    case DType::float64:
      return std::numeric_limits<double>::min();
    case DType::float32:
    case DType::bfloat16:
      return 0x1p-126;
    case DType::float16:
      return 0x1p-24;
    case DType::float8_e4m3fn:
      return 0x1p-9;
    case DType::float8_e5m2:
      return 0x1p-16;
    default:
      return 0;
  }
}

std::optional<Reduced> compare_reduction(const std::vector<Part>& inputs, const Part& output,
                                         const std::string& reduction, double factor) {
  if (!is_floating(output.record->dtype)) return compare_integers(inputs, output, reduction);
  const bool known = reduction == "sum" || reduction == "avg" || reduction == "premul_sum" ||
                     reduction == "prod" || reduction == "min" || reduction == "max";
  if (!known) return std::nullopt;
  Reduced result = compare_floats(inputs, output, reduction, factor, false);
  const bool additive = reduction == "sum" || reduction == "avg" || reduction == "premul_sum";
  if (result.wrong == 0 || !additive || inputs.size() > kExplained) return result;
  return compare_floats(inputs, output, reduction, factor, true);
}

Equality compare_bits(const Part& left, const Part& right) {
  Equality result;
  result.elements = left.count;
  const std::uint64_t size = size_of(left.record->dtype);
  ReadBuffer one, other;
  for (std::uint64_t start = 0; start < left.count; start += kTile) {
    const std::uint64_t count = std::min(kTile, left.count - start);
    const std::uint64_t from = (left.start + start) * size;
    const std::uint64_t there = (right.start + start) * size;
    const std::byte* mine = left.segment->view(*left.record, from, count * size, one);
    const std::byte* theirs = right.segment->view(*right.record, there, count * size, other);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::memcmp(mine + i * size, theirs + i * size, size) == 0) continue;
      if (result.different++ == 0) result.first = start + i;
    }
    left.segment->release(*left.record, from, count * size);
    right.segment->release(*right.record, there, count * size);
  }
  return result;
}

}  // namespace ttrace::builtin
