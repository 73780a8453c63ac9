// SPDX-License-Identifier: Apache-2.0
// One events.bin: definitions, functions and meta variables as they come, rows to records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariant/events_blocks.hpp"
#include "invariant/events_contents.hpp"
#include "invariant/record.hpp"

namespace ttrace::invariant {

// Columns and words that records are made of.
struct EventNames {
  explicit EventNames(Values& values);
  Name call_id, thread, process, type, function, bound, object, time, exception, message;
  Name variable, variable_type, mode, place;
  Name data, grad;  // within attributes
  Name attribute_data, attribute_grad;
  Value pre, post, failed, change, update;
};

class EventsFile {
 public:
  EventsFile(const std::filesystem::path& path, std::uint32_t number, bool call_ids);
  void poll(Records& records, const EventNames& names);
  void report(Records& records) const;

 private:
  struct Definition {
    Value value;
    Value args, kwargs;        // of a call, when it is that
    std::vector<Field> state;  // of a variable: the attributes but data and grad
    Name variable_type = 0;
    bool expanded = false;
  };
  struct Function {
    Value name;
    bool bound = false;
  };
  struct Call {
    std::int64_t function = 0;
    std::uint64_t number = 0;
    std::int64_t object = 0;
    Value id;  // func_call_id, when wanted
    Name site = 0;
  };
  struct Thread {
    std::uint64_t calls = 0;
    std::vector<Call> open;
    std::vector<Content> contents;  // of what the next call is given
    Name site = 0;                  // of the next call
  };
  using Row = std::span<const std::int64_t, 4>;

  void take(const Block& block, Records& records, const EventNames& names);
  void define(const Block& block, Values& values);
  void add_functions(const Block& block, Records& records);
  void add_meta(const Block& block, Values& values);
  void move_to(std::int64_t time);
  [[nodiscard]] std::span<const Field> meta() const;
  void set_step(Value step);
  void add_rows(const Block& block, Records& records, const EventNames& names);
  bool add_call(Row row, std::uint64_t thread, Records& records, const EventNames& names);
  bool add_content(Row row, std::uint64_t thread);
  bool add_site(Row row, std::uint64_t thread);
  void add_loss(Row row, std::uint64_t thread);
  bool add_end(Row row, std::uint64_t thread, Records& records, const EventNames& names);
  bool add_state(Row row, Row values, std::uint64_t thread, Records& records,
                 const EventNames& names);
  Record make(Row row, std::uint64_t thread, RecordKind kind);
  void add_place(Record& record, const EventNames& names) const;
  void add_call_end(Record& record, const Call& call, bool bound, const EventNames& names) const;
  bool add_error(Record& record, std::int64_t number, Values& values, const EventNames& names);
  Definition* definition(std::int64_t number);
  void expand_state(Definition& definition, Values& values, const EventNames& names);

  EventBlocks blocks_;
  std::string path_;
  std::uint32_t number_;  // in Records::files
  bool call_ids_;
  std::int64_t process_ = 0;
  std::uint64_t rows_ = 0;
  std::uint64_t lost_ = 0;  // ends of calls that began before the file did
  std::uint64_t first_lost_ = 0;
  std::optional<std::int64_t> step_;      // of the latest block that tells it
  std::optional<std::int64_t> row_step_;  // of the latest event
  NaNLoss nan_loss_;                      // with a count of 0: none
  std::vector<Definition> definitions_;
  std::unordered_map<std::int64_t, Function> functions_;
  // Meta variables that hold from a time on (0: from where they stand), those in force first; of
  // rows of the last blocks only.
  struct Meta {
    std::int64_t since = 0;
    std::optional<std::int64_t> step;
    std::vector<Field> fields;
  };
  std::vector<Meta> metas_;
  std::size_t meta_ = 0;  // that of the present row, once there is one
  bool rows_since_meta_ = false;
  std::unordered_map<std::uint64_t, Thread> threads_;
};

}  // namespace ttrace::invariant
