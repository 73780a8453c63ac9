// SPDX-License-Identifier: Apache-2.0
// See columns.hpp.
#include "invariant/compat/columns.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace ttrace::invariant::compat {
namespace {

struct Column {
  std::uint32_t rank = 0;  // in the order of first appearance
  bool numbers = true;     // all present values are integers or floats
  bool floats = false;     // one is a float, or a row has none
  // of the current file
  std::uint64_t rows = 0;
  bool file_numbers = true;
  bool file_floats = false;
  std::vector<std::uint32_t> float_files;  // where it has floats, whatever other files have
};

using Columns = std::unordered_map<Name, Column>;

// First the columns of each file, then those of all files together: a file without the column
// makes a hole only if the others have numbers.
class Typing {
 public:
  explicit Typing(Columns& columns) : columns_(columns) {}

  void add(const Record& record) {
    ++rows_;
    for (const Field& field : record.fields) {
      const auto [entry, added] = columns_.try_emplace(field.column);
      Column& column = entry->second;
      if (added) column.rank = static_cast<std::uint32_t>(columns_.size() - 1);
      if (added && earlier_rows_) column.floats = true;
      ++column.rows;
      const bool number = field.value.kind == Kind::integer || field.value.kind == Kind::real;
      column.file_numbers = column.file_numbers && number;
      column.file_floats = column.file_floats || field.value.kind == Kind::real;
    }
  }

  void end_file(std::uint32_t file) {
    for (auto& [name, column] : columns_) {
      if (rows_ == 0) break;
      const bool hole = column.rows < rows_;
      column.floats = column.floats || column.file_floats || hole;
      if (column.rows > 0) {
        column.numbers = column.numbers && column.file_numbers;
        const bool floats = column.file_numbers && (column.file_floats || hole);
        if (floats) column.float_files.push_back(file);
      }
      column.rows = 0;
      column.file_numbers = true;
      column.file_floats = false;
    }
    earlier_rows_ = earlier_rows_ || rows_ > 0;
    rows_ = 0;
  }

 private:
  Columns& columns_;
  std::uint64_t rows_ = 0;
  bool earlier_rows_ = false;
};

bool missing(const Field& field) {
  return !field.value.present() || (field.value.kind == Kind::real && std::isnan(field.value.real));
}

bool contains(const std::vector<std::uint32_t>& files, std::uint32_t file) {
  return std::ranges::find(files, file) != files.end();
}

}  // namespace

void apply_columns(Records& records) {
  Columns columns;
  Typing typing(columns);
  for (std::size_t i = 0; i < records.records.size(); ++i) {
    Record& record = records.records[i];
    const bool next = i > 0 && record.file != records.records[i - 1].file;
    if (next) typing.end_file(records.records[i - 1].file);
    std::erase_if(record.fields, missing);
    typing.add(record);
  }
  if (!records.records.empty()) typing.end_file(records.records.back().file);
  for (Record& record : records.records) {
    for (Field& field : record.fields) {
      const Column& column = columns.at(field.column);
      if (field.value.kind != Kind::integer) continue;
      if ((column.numbers && column.floats) || contains(column.float_files, record.file)) {
        field.value = real(static_cast<double>(field.value.integer));
      }
    }
    const auto rank = [&](const Field& field) { return columns.at(field.column).rank; };
    if (!std::ranges::is_sorted(record.fields, {}, rank)) {
      std::ranges::sort(record.fields, {}, rank);
    }
  }
}

}  // namespace ttrace::invariant::compat
