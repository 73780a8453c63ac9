// SPDX-License-Identifier: Apache-2.0
// See segment_table.hpp.
#include "libttrace/segment_table.hpp"

#include <hdf5.h>

#include <cstring>

namespace ttrace {
namespace {

struct Element {
  h5::Id type;
  std::size_t size;
};

Element element_of(ColumnType type) {
  switch (type) {
    case ColumnType::u8:
      return {H5T_STD_U8LE, 1};
    case ColumnType::i32:
      return {H5T_STD_I32LE, 4};
    case ColumnType::u32:
      return {H5T_STD_U32LE, 4};
    case ColumnType::i64:
      return {H5T_STD_I64LE, 8};
    case ColumnType::u64:
      return {H5T_STD_U64LE, 8};
    case ColumnType::f64:
      break;
  }
  return {H5T_IEEE_F64LE, 8};
}

h5::Handle type_of(const h5::Caller& caller, const Column& column) {
  const Element element = element_of(column.type);
  const hsize_t extent = column.size / element.size;
  if (extent == 1) return caller.own(H5Tcopy(element.type), H5Tclose);
  return caller.own(H5Tarray_create2(element.type, 1, &extent), H5Tclose);
}

h5::Handle row_type(const h5::Caller& caller, const Table& table) {
  h5::Handle row = caller.own(H5Tcreate(H5T_COMPOUND, table.row_size), H5Tclose);
  for (const Column& column : table.columns) {
    const h5::Handle type = type_of(caller, column);
    caller.check(H5Tinsert(row.get(), column.name, column.offset, type.get()));
  }
  return row;
}

// Where the file's row type has each of our columns.
std::vector<std::size_t> offsets_in(const h5::Caller& caller, h5::Id type, const Table& table) {
  const std::string where = std::string("/") + table.name;
  if (H5Tget_class(type) != H5T_COMPOUND) caller.fail(where + " is not a table");
  std::vector<std::size_t> offsets;
  for (const Column& column : table.columns) {
    const std::string what = std::string("column ") + column.name + " of " + where;
    const int member = H5Tget_member_index(type, column.name);
    if (member < 0) caller.fail(what + " is missing");
    const auto number = static_cast<unsigned>(member);
    const h5::Handle has = caller.own(H5Tget_member_type(type, number), H5Tclose);
    if (H5Tequal(has.get(), type_of(caller, column).get()) <= 0) {
      caller.fail(what + " has another type");
    }
    offsets.push_back(H5Tget_member_offset(type, number));
  }
  return offsets;
}

}  // namespace

void write_table(const h5::Caller& caller, h5::Id file, const Table& table,
                 std::span<const std::byte> rows) {
  const hsize_t count = rows.size() / table.row_size;
  const h5::Handle type = row_type(caller, table);
  const h5::Handle space = caller.own(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const h5::Handle dataset = caller.own(
      H5Dcreate2(file, table.name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  if (count == 0) return;
  caller.check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()));
}

RawRows read_table(const h5::Caller& caller, h5::Id file, const Table& table) {
  const h5::Handle dataset = caller.own(H5Dopen2(file, table.name, H5P_DEFAULT), H5Dclose);
  const h5::Handle type = caller.own(H5Dget_type(dataset.get()), H5Tclose);
  const h5::Handle space = caller.own(H5Dget_space(dataset.get()), H5Sclose);
  RawRows raw;
  raw.offsets = offsets_in(caller, type.get(), table);
  raw.row_size = H5Tget_size(type.get());
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  caller.check(count);
  raw.bytes.resize(static_cast<std::size_t>(count) * raw.row_size);
  if (!raw.bytes.empty()) {  // the file's own type, so that nothing is converted
    caller.check(
        H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, raw.bytes.data()));
  }
  return raw;
}

void unpack_into(std::byte* rows, const RawRows& raw, const Table& table) {
  const std::size_t count = raw.bytes.size() / raw.row_size;
  for (std::size_t row = 0; row < count; ++row) {
    std::byte* to = rows + row * table.row_size;
    const std::byte* from = raw.bytes.data() + row * raw.row_size;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      std::memcpy(to + table.columns[i].offset, from + raw.offsets[i], table.columns[i].size);
    }
  }
}

}  // namespace ttrace
