// SPDX-License-Identifier: Apache-2.0
// A record is one tensor shard as one rank saw it, once. Kinds say how much of it was kept.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libttrace/core/dtype.hpp"
#include "libttrace/core/key.hpp"

namespace ttrace {

// Part of the file format and of the C ABI; append only. A reader that meets a kind it does not
// know reports the record as not comparable, it never skips it silently.
enum class RecordKind : std::uint8_t {
  full = 0,   // all bytes
  stats = 1,  // statistics and hash, no bytes
  hash = 2,   // hash only
  // 3 is reserved for sketch: a linear sketch keyed by the logical index.
};

// Bits of Record::flags; append only.
inline constexpr std::uint32_t kFlagTrainable = 1u << 0;   // param: requires a gradient
inline constexpr std::uint32_t kFlagRootInput = 1u << 1;   // input of the root module
inline constexpr std::uint32_t kFlagGlue = 1u << 2;        // an input that no module returned
inline constexpr std::uint32_t kFlagNoGradient = 1u << 3;  // the step found no gradient (None)

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

// Over finite elements; computed in double by the writer. Empty tensors: all zero.
struct Statistics {
  double sum_squares = 0;
  double min = 0;
  double max = 0;
  std::uint64_t nan_count = 0;
  std::uint64_t inf_count = 0;
};

using Shape = std::vector<std::uint64_t>;

// 1 for a 0-d tensor.
[[nodiscard]] inline std::uint64_t element_count(const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

inline constexpr std::int64_t kNotAlias = -1;
inline constexpr std::int32_t kNoLayout = -1;

struct Record {
  Key key;
  std::uint64_t sequence = 0;  // execution order on this rank, from 0 in each segment
  DType dtype = DType::float32;
  RecordKind kind = RecordKind::full;
  Shape shape;                        // of the local shard
  std::int32_t layout = kNoLayout;    // row of /layouts: what the framework declared
  std::int64_t alias_of = kNotAlias;  // sequence of the record that has the same storage
  std::uint32_t flags = 0;
  std::uint64_t bytes = 0;   // of the local shard, also when they were not kept
  std::uint64_t offset = 0;  // of the payload in the file; meaningful for kind full, not alias
  Hash128 hash;              // XXH3-128 of the packed bytes (an alias row repeats its target's)
  Statistics statistics;
  std::string raw_name;  // see raw_name_of; empty where it is the key's module, as it mostly is
};

// The module's or parameter's name as the program spells it.
[[nodiscard]] inline const std::string& raw_name_of(const Record& record) {
  return record.raw_name.empty() ? record.key.module : record.raw_name;
}

}  // namespace ttrace
