// SPDX-License-Identifier: Apache-2.0
// See segment_collectives.hpp.
#include "libttrace/segment_collectives.hpp"

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "libttrace/hash.hpp"
#include "libttrace/segment_table.hpp"

namespace ttrace {
namespace {

constexpr const char* kHash = "collectives_hash";  // attribute

#define TTRACE_COLUMN(name, type) \
  Column { #name, ColumnType::type, offsetof(CollectiveRow, name), sizeof(CollectiveRow::name) }

constexpr std::array kColumns{
    TTRACE_COLUMN(group, i32),        TTRACE_COLUMN(function, i32),
    TTRACE_COLUMN(reduction, i32),    TTRACE_COLUMN(module, i32),
    TTRACE_COLUMN(input_splits, i32), TTRACE_COLUMN(output_splits, i32),
    TTRACE_COLUMN(sequence, u64),     TTRACE_COLUMN(member, i32),
    TTRACE_COLUMN(size, i32),         TTRACE_COLUMN(peer, i32),
    TTRACE_COLUMN(microbatch, i32),   TTRACE_COLUMN(dtype, u8),
    TTRACE_COLUMN(flags, u32),        TTRACE_COLUMN(count, u64),
    TTRACE_COLUMN(factor, f64),       TTRACE_COLUMN(input, i64),
    TTRACE_COLUMN(output, i64),       TTRACE_COLUMN(position, u64),
};
#undef TTRACE_COLUMN

constexpr Table kCollectives{"collectives", kColumns, sizeof(CollectiveRow)};

std::string hash_of(std::span<const std::byte> rows) {
  HashStream stream;
  stream.append(rows);
  return to_string(stream.finish());
}

// Turns rows into collectives; remembers which row it is at, for the message.
class RowChecker {
 public:
  RowChecker(const h5::Caller& caller, const std::vector<std::string>& names, std::uint64_t records)
      : caller_(caller), names_(names), records_(records) {}

  std::vector<Collective> collectives(const std::vector<CollectiveRow>& rows) {
    std::vector<Collective> all;
    all.reserve(rows.size());
    for (; at_ < rows.size(); ++at_) all.push_back(collective_of(rows[at_]));
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    caller_.fail("row " + std::to_string(at_) + " of /collectives: " + why);
  }

  std::string text(std::int32_t row, const char* what) const {
    if (row == -1) return {};
    if (row < 0 || static_cast<std::size_t>(row) >= names_.size()) {
      fail(std::string(what) + " is not a row of /names");
    }
    return names_[static_cast<std::size_t>(row)];
  }

  Collective collective_of(const CollectiveRow& row) const {
    Collective result;
    result.function = text(row.function, "function");
    result.reduction = text(row.reduction, "reduction");
    result.group = text(row.group, "group");
    result.module = text(row.module, "module");
    result.input_splits = text(row.input_splits, "input_splits");
    result.output_splits = text(row.output_splits, "output_splits");
    result.sequence = row.sequence;
    result.count = row.count;
    result.position = row.position;
    result.factor = row.factor;
    result.member = row.member;
    result.size = row.size;
    result.peer = row.peer;
    result.microbatch = row.microbatch;
    result.flags = row.flags;
    const std::optional<DType> dtype = dtype_from_code(row.dtype);
    if (!dtype) fail("unknown dtype; a newer ttrace wrote it");
    result.dtype = *dtype;
    result.input = row.input;
    result.output = row.output;
    const std::string problem = problem_of(result, records_);
    if (!problem.empty()) fail(problem);
    return result;
  }

  const h5::Caller& caller_;
  const std::vector<std::string>& names_;
  std::uint64_t records_;
  std::size_t at_ = 0;
};

}  // namespace

std::string problem_of(const Collective& collective, std::uint64_t records) {
  if (collective.function.empty()) return "it has no function";
  for (const std::string* text :
       {&collective.function, &collective.reduction, &collective.group, &collective.module,
        &collective.input_splits, &collective.output_splits}) {
    if (text->find('\0') != std::string::npos) return "one of its texts contains a NUL byte";
  }
  for (const std::int64_t row : {collective.input, collective.output}) {
    if (row < kNotRecorded || (row >= 0 && static_cast<std::uint64_t>(row) >= records)) {
      return "buffer " + std::to_string(row) + " is not a row of /index";
    }
  }
  if (collective.position > records) {
    return "position " + std::to_string(collective.position) + " is behind the last row of /index";
  }
  if (collective.member < 0 || collective.member >= collective.size) {
    return "member " + std::to_string(collective.member) + " is not in a group of " +
           std::to_string(collective.size);
  }
  if (collective.peer < -1 || collective.peer >= collective.size) {
    return "peer " + std::to_string(collective.peer) + " is not in a group of " +
           std::to_string(collective.size);
  }
  return {};
}

CollectiveRow row_of(const Collective& collective, StringTable& names) {
  const auto text = [&names](const std::string& value) {
    return value.empty() ? -1 : names.row_of(value);
  };
  CollectiveRow row;
  row.group = text(collective.group);
  row.function = text(collective.function);
  row.reduction = text(collective.reduction);
  row.module = text(collective.module);
  row.input_splits = text(collective.input_splits);
  row.output_splits = text(collective.output_splits);
  row.sequence = collective.sequence;
  row.member = collective.member;
  row.size = collective.size;
  row.peer = collective.peer;
  row.microbatch = collective.microbatch;
  row.dtype = static_cast<std::uint8_t>(collective.dtype);
  row.flags = collective.flags;
  row.count = collective.count;
  row.factor = collective.factor;
  row.input = collective.input;
  row.output = collective.output;
  row.position = collective.position;
  return row;
}

void write_collectives(const h5::Caller& caller, h5::Id file,
                       const std::vector<CollectiveRow>& rows) {
  if (rows.empty()) return;
  const auto bytes = std::as_bytes(std::span(rows));
  write_table(caller, file, kCollectives, bytes);
  h5::write_attribute(caller, file, kHash, hash_of(bytes));
}

std::vector<Collective> read_collectives(const h5::Caller& caller, h5::Id file,
                                         std::uint64_t records) {
  if (H5Lexists(file, kCollectives.name, H5P_DEFAULT) <= 0) return {};
  const RawRows raw = read_table(caller, file, kCollectives);
  if (h5::has_attribute(file, kHash) &&
      h5::string_attribute(caller, file, kHash) != hash_of(raw.bytes)) {
    caller.fail(
        "/collectives is damaged (its hash does not match); copy or capture the trace again");
  }
  const std::vector<std::string> names = h5::read_strings(caller, file, "names");
  return RowChecker(caller, names, records).collectives(unpack<CollectiveRow>(raw, kCollectives));
}

}  // namespace ttrace
