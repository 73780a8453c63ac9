// SPDX-License-Identifier: Apache-2.0
// The rows of /index, and what guards them. Only for the segment's writer and reader.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "libttrace/core/record.hpp"
#include "libttrace/h5.hpp"

namespace ttrace {

inline constexpr std::size_t kMaxDimensions = 16;
inline constexpr const char* kFormatName = "ttrace";
inline constexpr const char* kIndexHash = "index_hash";  // attribute

// One row, without padding, as it is in the file.
struct IndexRow {
  std::int32_t module = 0;  // rows of /names
  std::int32_t slot = 0;
  std::int32_t raw_name = -1;
  std::uint8_t phase = 0;
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::uint8_t ndim = 0;
  std::int32_t microbatch = -1;
  std::uint32_t call = 0;
  std::uint32_t flags = 0;
  std::int32_t layout = kNoLayout;
  std::int64_t alias_of = kNotAlias;
  std::array<std::uint64_t, kMaxDimensions> shape{};
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  Hash128 hash;
  Statistics statistics;
};

// Bytes of a packed tensor; nullopt when they are more than 2^63.
[[nodiscard]] std::optional<std::uint64_t> packed_size(const Shape& shape, DType dtype);

// Distinct strings in the order in which they were first seen.
class StringTable {
 public:
  std::int32_t row_of(const std::string& text);
  [[nodiscard]] const std::vector<std::string>& rows() const { return rows_; }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<std::string> rows_;
};

// Without layout, hash and statistics.
[[nodiscard]] IndexRow row_of(const Record& record, StringTable& names);

// What the index says: its rows and the strings they refer to.
struct SegmentIndex {
  std::vector<IndexRow> rows;
  std::vector<std::string> names;
  std::vector<std::string> layouts;
};

// XXH3-128 of the rows' bytes and the strings (each with its terminating NUL), as 32 hex digits.
// The payloads have their own hashes; this one notices a damaged index.
[[nodiscard]] std::string hash_of(std::span<const std::byte> rows,
                                  const std::vector<std::string>& names,
                                  const std::vector<std::string>& layouts);

void write_index(const h5::Caller& caller, h5::Id file, const SegmentIndex& index);
// Checks the types and the hash; what the rows say is for the reader to check.
[[nodiscard]] SegmentIndex read_index(const h5::Caller& caller, h5::Id file);

}  // namespace ttrace
