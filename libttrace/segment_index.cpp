// SPDX-License-Identifier: Apache-2.0
// See segment_index.hpp.
#include "libttrace/segment_index.hpp"

#include <algorithm>
#include <cstddef>

#include "libttrace/hash.hpp"
#include "libttrace/segment_table.hpp"

namespace ttrace {
namespace {

#define TTRACE_COLUMN(name, type, member) \
  Column { name, ColumnType::type, offsetof(IndexRow, member), sizeof(IndexRow::member) }
// Members of members, spelled with their outer one: offsetof of a nested member is conditional.
#define TTRACE_INNER(name, type, outer, inner)                                    \
  Column {                                                                        \
    name, ColumnType::type,                                                       \
        offsetof(IndexRow, outer) + offsetof(decltype(IndexRow::outer), inner), 8 \
  }

constexpr std::array kColumns{
    TTRACE_COLUMN("module", i32, module),
    TTRACE_COLUMN("slot", i32, slot),
    TTRACE_COLUMN("raw_name", i32, raw_name),
    TTRACE_COLUMN("phase", u8, phase),
    TTRACE_COLUMN("dtype", u8, dtype),
    TTRACE_COLUMN("kind", u8, kind),
    TTRACE_COLUMN("ndim", u8, ndim),
    TTRACE_COLUMN("microbatch", i32, microbatch),
    TTRACE_COLUMN("call", u32, call),
    TTRACE_COLUMN("flags", u32, flags),
    TTRACE_COLUMN("layout", i32, layout),
    TTRACE_COLUMN("alias_of", i64, alias_of),
    TTRACE_COLUMN("shape", u64, shape),
    TTRACE_COLUMN("bytes", u64, bytes),
    TTRACE_COLUMN("offset", u64, offset),
    TTRACE_INNER("hash_low", u64, hash, low),
    TTRACE_INNER("hash_high", u64, hash, high),
    TTRACE_INNER("sum_squares", f64, statistics, sum_squares),
    TTRACE_INNER("min", f64, statistics, min),
    TTRACE_INNER("max", f64, statistics, max),
    TTRACE_INNER("nan_count", u64, statistics, nan_count),
    TTRACE_INNER("inf_count", u64, statistics, inf_count),
};
static_assert(sizeof(IndexRow) == 4 * 4 + 4 * 4 + 8 + 8 * kMaxDimensions + 4 * 8 + 5 * 8,
              "padding would reach the file");

constexpr Table kIndex{"index", kColumns, sizeof(IndexRow)};

}  // namespace

std::optional<std::uint64_t> packed_size(const Shape& shape, DType dtype) {
  std::uint64_t bytes = size_of(dtype);
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  for (const std::uint64_t extent : shape) {
    if (extent > (std::uint64_t{1} << 63) / bytes) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

IndexRow row_of(const Record& record, StringTable& names) {
  IndexRow row;
  row.module = names.row_of(record.key.module);
  row.slot = names.row_of(record.key.slot);
  if (!record.raw_name.empty() && record.raw_name != record.key.module) {
    row.raw_name = names.row_of(record.raw_name);
  }
  row.phase = static_cast<std::uint8_t>(record.key.phase);
  row.dtype = static_cast<std::uint8_t>(record.dtype);
  row.kind = static_cast<std::uint8_t>(record.kind);
  row.ndim = static_cast<std::uint8_t>(record.shape.size());
  row.microbatch = std::max(record.key.microbatch, -1);
  row.call = record.key.call;
  row.flags = record.flags;
  row.alias_of = record.alias_of;
  std::copy(record.shape.begin(), record.shape.end(), row.shape.begin());
  row.bytes = record.bytes;
  row.offset = record.offset;
  return row;
}

std::int32_t StringTable::row_of(const std::string& text) {
  const auto [at, added] = numbers_.emplace(text, static_cast<std::int32_t>(rows_.size()));
  if (added) rows_.push_back(text);
  return at->second;
}

std::string hash_of(std::span<const std::byte> rows, const std::vector<std::string>& names,
                    const std::vector<std::string>& layouts) {
  HashStream stream;
  stream.append(rows);
  for (const auto* list : {&names, &layouts}) {
    for (const std::string& text : *list) {
      stream.append(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    }
  }
  return to_string(stream.finish());
}

void write_index(const h5::Caller& caller, h5::Id file, const SegmentIndex& index) {
  h5::write_strings(caller, file, "names", index.names);
  h5::write_strings(caller, file, "layouts", index.layouts);
  const auto rows = std::as_bytes(std::span(index.rows));
  write_table(caller, file, kIndex, rows);
  h5::write_attribute(caller, file, kIndexHash, hash_of(rows, index.names, index.layouts));
}

SegmentIndex read_index(const h5::Caller& caller, h5::Id file) {
  SegmentIndex index;
  index.names = h5::read_strings(caller, file, "names");
  index.layouts = h5::read_strings(caller, file, "layouts");
  const RawRows raw = read_table(caller, file, kIndex);
  if (h5::has_attribute(file, kIndexHash) && h5::string_attribute(caller, file, kIndexHash) !=
                                                 hash_of(raw.bytes, index.names, index.layouts)) {
    caller.fail("the index is damaged (its hash does not match); copy or capture the trace again");
  }
  index.rows = unpack<IndexRow>(raw, kIndex);
  return index;
}

}  // namespace ttrace
