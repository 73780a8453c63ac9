// SPDX-License-Identifier: Apache-2.0
// Tables of a segment: a list of columns describes the file's compound type, checks that of a file
// and copies rows. Columns are looked up by name, so that files with more columns than this version
// knows stay readable. Only for the segment's writer and reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libttrace/h5.hpp"

namespace ttrace {

enum class ColumnType : std::uint8_t { u8, i32, u32, i64, u64, f64 };

struct Column {
  const char* name;
  ColumnType type;
  std::size_t offset;  // in a row of ours
  std::size_t size;    // of one element, or of an array of them
};

// Rows of ours are in the file as they are in memory, so they must have no padding.
struct Table {
  const char* name;  // of the dataset
  std::span<const Column> columns;
  std::size_t row_size;
};

void write_table(const h5::Caller& caller, h5::Id file, const Table& table,
                 std::span<const std::byte> rows);

// As they are in the file, which hashes are of.
struct RawRows {
  std::vector<std::byte> bytes;
  std::size_t row_size = 0;
  std::vector<std::size_t> offsets;  // of each of our columns
};

// Throws Trouble when a column is missing or has another type.
[[nodiscard]] RawRows read_table(const h5::Caller& caller, h5::Id file, const Table& table);

void unpack_into(std::byte* rows, const RawRows& raw, const Table& table);

template <class Row>
std::vector<Row> unpack(const RawRows& raw, const Table& table) {
  std::vector<Row> rows(raw.bytes.size() / raw.row_size);
  unpack_into(reinterpret_cast<std::byte*>(rows.data()), raw, table);
  return rows;
}

}  // namespace ttrace
