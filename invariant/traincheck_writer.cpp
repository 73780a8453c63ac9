// SPDX-License-Identifier: Apache-2.0
#include "invariant/traincheck_writer.hpp"

#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "invariant/json_text.hpp"
#include "invariant/text_file.hpp"

namespace ttrace::invariant {

namespace {

// Writes columns that share the names in front of their last '.' into one nested object.
class RecordWriter {
 public:
  RecordWriter(std::string& out, const Values& values) : out_(out), values_(values) {}

  void write(const Record& record) {
    out_ += '{';
    bool typed = false;
    for (std::size_t at = 0; at < record.fields.size(); ++at) {
      const std::string_view column = values_.text(record.fields[at].column);
      if (at + 1 == record.fields.size() && column == "time") {
        write_typed(record);
        typed = true;
      }
      const std::size_t own = enter(column);
      name(column.substr(own));
      append_json(out_, values_, record.fields[at].value);
    }
    if (!typed) write_typed(record);
    leave(0);
    out_ += '}';
  }

 private:
  void write_typed(const Record& record) {
    leave(0);
    for (const auto& [key, value] : {std::pair("args", record.args),
                                     {"kwargs", record.kwargs},
                                     {"return_values", record.returns}}) {
      if (!value.present()) continue;
      name(key);
      append_json(out_, values_, value);
    }
  }

  // Leaves and enters objects until those of the column are open; where its own name begins.
  std::size_t enter(std::string_view column) {
    std::size_t depth = 0, begin = 0;
    while (depth < open_.size() && column.substr(begin).starts_with(open_[depth]))
      begin += open_[depth++].size();
    leave(depth);
    for (std::size_t dot = column.find('.', begin); dot != std::string_view::npos;
         dot = column.find('.', begin)) {
      name(column.substr(begin, dot - begin));
      out_ += '{';
      first_ = true;
      open_.push_back(column.substr(begin, dot + 1 - begin));
      begin = dot + 1;
    }
    return begin;
  }

  void leave(std::size_t depth) {
    for (; open_.size() > depth; open_.pop_back()) {
      out_ += '}';
      first_ = false;
    }
  }

  void name(std::string_view text) {
    if (!first_) out_ += ", ";
    first_ = false;
    append_json_string(out_, text);
    out_ += ": ";
  }

  std::string& out_;
  const Values& values_;
  std::vector<std::string_view> open_;  // names of open objects, each with its '.'
  bool first_ = true;
};

}  // namespace

void append_record(std::string& out, const Values& values, const Record& record) {
  if (record.original.present()) {
    append_json(out, values, record.original);
  } else {
    RecordWriter(out, values).write(record);
  }
}

void write_traincheck(const std::filesystem::path& folder, const Records& records) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_trouble("cannot make the folder", folder, error.value());
  std::string line;
  std::size_t at = 0;
  for (std::uint32_t number = 0; number < records.files.size(); ++number) {
    TextFile file(folder / std::filesystem::path(records.files[number]).filename());
    for (; at < records.records.size() && records.records[at].file == number; ++at) {
      line.clear();
      append_record(line, records.values, records.records[at]);
      file.append(line += '\n');
    }
    file.finish();
  }
}

}  // namespace ttrace::invariant
