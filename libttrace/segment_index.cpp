// SPDX-License-Identifier: Apache-2.0
// One table names the columns; the file's compound type, the check of a file's type and the copying
// of rows all walk it.
#include "libttrace/segment_index.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "libttrace/hash.hpp"

namespace ttrace {
namespace {

enum class Type : std::uint8_t { u8, i32, u32, i64, u64, f64, shape };

struct Column {
  const char* name;
  Type type;
  std::size_t offset;
  std::size_t size;
};

#define TTRACE_COLUMN(name, type, member) \
  Column { name, Type::type, offsetof(IndexRow, member), sizeof(IndexRow::member) }
// Members of members, spelled with their outer one: offsetof of a nested member is conditional.
#define TTRACE_INNER(name, type, outer, inner)                                                  \
  Column {                                                                                      \
    name, Type::type, offsetof(IndexRow, outer) + offsetof(decltype(IndexRow::outer), inner), 8 \
  }

const std::array kColumns{
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
    TTRACE_COLUMN("shape", shape, shape),
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

h5::Handle type_of(const h5::Caller& caller, Type type) {
  const auto copy = [&](h5::Id of) { return caller.own(H5Tcopy(of), H5Tclose); };
  switch (type) {
    case Type::u8:
      return copy(H5T_STD_U8LE);
    case Type::i32:
      return copy(H5T_STD_I32LE);
    case Type::u32:
      return copy(H5T_STD_U32LE);
    case Type::i64:
      return copy(H5T_STD_I64LE);
    case Type::u64:
      return copy(H5T_STD_U64LE);
    case Type::f64:
      return copy(H5T_IEEE_F64LE);
    case Type::shape:
      break;
  }
  const hsize_t extent = kMaxDimensions;
  return caller.own(H5Tarray_create2(H5T_STD_U64LE, 1, &extent), H5Tclose);
}

h5::Handle row_type(const h5::Caller& caller) {
  h5::Handle row = caller.own(H5Tcreate(H5T_COMPOUND, sizeof(IndexRow)), H5Tclose);
  for (const Column& column : kColumns) {
    const h5::Handle type = type_of(caller, column.type);
    caller.check(H5Tinsert(row.get(), column.name, column.offset, type.get()));
  }
  return row;
}

// Where the file's row type has each of our columns.
std::vector<std::size_t> offsets_in(const h5::Caller& caller, h5::Id type) {
  if (H5Tget_class(type) != H5T_COMPOUND) caller.fail("/index is not a table");
  std::vector<std::size_t> offsets;
  for (const Column& column : kColumns) {
    const int member = H5Tget_member_index(type, column.name);
    if (member < 0) caller.fail(std::string("column ") + column.name + " of /index is missing");
    const auto number = static_cast<unsigned>(member);
    const h5::Handle has = caller.own(H5Tget_member_type(type, number), H5Tclose);
    if (H5Tequal(has.get(), type_of(caller, column.type).get()) <= 0) {
      caller.fail(std::string("column ") + column.name + " of /index has another type");
    }
    offsets.push_back(H5Tget_member_offset(type, number));
  }
  return offsets;
}

std::vector<IndexRow> unpack(const std::vector<std::byte>& raw, std::size_t row_size,
                             const std::vector<std::size_t>& offsets) {
  std::vector<IndexRow> rows(raw.size() / row_size);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    auto* to = reinterpret_cast<std::byte*>(&rows[row]);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      std::memcpy(to + kColumns[i].offset, raw.data() + row * row_size + offsets[i],
                  kColumns[i].size);
    }
  }
  return rows;
}

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
  const hsize_t count = index.rows.size();
  const h5::Handle type = row_type(caller);
  const h5::Handle space = caller.own(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const h5::Handle dataset = caller.own(
      H5Dcreate2(file, "index", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  if (count != 0) {
    caller.check(
        H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, index.rows.data()));
  }
  h5::write_attribute(caller, file, kIndexHash,
                      hash_of(std::as_bytes(std::span(index.rows)), index.names, index.layouts));
}

SegmentIndex read_index(const h5::Caller& caller, h5::Id file) {
  SegmentIndex index;
  index.names = h5::read_strings(caller, file, "names");
  index.layouts = h5::read_strings(caller, file, "layouts");

  const h5::Handle dataset = caller.own(H5Dopen2(file, "index", H5P_DEFAULT), H5Dclose);
  const h5::Handle type = caller.own(H5Dget_type(dataset.get()), H5Tclose);
  const h5::Handle space = caller.own(H5Dget_space(dataset.get()), H5Sclose);
  const std::vector<std::size_t> offsets = offsets_in(caller, type.get());
  const std::size_t row_size = H5Tget_size(type.get());
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  caller.check(count);
  std::vector<std::byte> raw(static_cast<std::size_t>(count) * row_size);
  if (!raw.empty()) {  // the file's own type: raw bytes, which the hash is of
    caller.check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, raw.data()));
  }
  if (h5::has_attribute(file, kIndexHash) &&
      h5::string_attribute(caller, file, kIndexHash) != hash_of(raw, index.names, index.layouts)) {
    caller.fail("the index is damaged (its hash does not match); copy or capture the trace again");
  }
  index.rows = unpack(raw, row_size, offsets);
  return index;
}

}  // namespace ttrace
