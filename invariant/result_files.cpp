// SPDX-License-Identifier: Apache-2.0
#include "invariant/result_files.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "invariant/invariant_json.hpp"
#include "invariant/json_text.hpp"
#include "invariant/text_file.hpp"

namespace ttrace::invariant {

namespace {

constexpr int indent = 4;

// Records as rows of one table: each with every column that any of them has.
class Table {
 public:
  explicit Table(Records& records)
      : records_(records),
        args_(records.values.name("args")),
        kwargs_(records.values.name("kwargs")),
        returns_(records.values.name("return_values")) {
    std::unordered_set<Name> seen;
    for (const Record& record : records.records) {
      for (const Field& field : record.fields) add(field.column, seen);
      if (record.args.present()) add(args_, seen);
      if (record.kwargs.present()) add(kwargs_, seen);
      if (record.returns.present()) add(returns_, seen);
      first_ = std::min(first_, record.time);
      last_ = std::max(last_, record.time);
    }
  }

  // Absent values are written as NaN.
  [[nodiscard]] Value row(const Record& record) {
    std::vector<Member> members;
    for (const Name column : columns_) {
      members.push_back({column, column == args_      ? record.args
                                 : column == kwargs_  ? record.kwargs
                                 : column == returns_ ? record.returns
                                                      : record.field(column)});
    }
    return records_.values.object(members);
  }

  // Where between the first record and the last one.
  [[nodiscard]] double share(std::int64_t time) const {
    const double length = static_cast<double>(last_) - static_cast<double>(first_);
    return length > 0 ? (static_cast<double>(time) - static_cast<double>(first_)) / length : 0;
  }

 private:
  void add(Name column, std::unordered_set<Name>& seen) {
    if (seen.insert(column).second) columns_.push_back(column);
  }

  Records& records_;
  Name args_, kwargs_, returns_;
  std::vector<Name> columns_;  // in the order of first appearance
  std::int64_t first_ = INT64_MAX, last_ = INT64_MIN;
};

class ResultWriter {
 public:
  ResultWriter(const std::filesystem::path& folder, Records& records)
      : folder_(folder), records_(records), form_(records.values), table_(records) {}

  void write_log(const char* name, Verdict verdict, std::span<const Outcome> outcomes) {
    TextFile file(folder_ / name);
    std::string text;
    for (const Outcome& outcome : outcomes) {
      if (outcome.verdict != verdict) continue;
      text.clear();
      append_json(text, records_.values, result(outcome), indent);
      file.append(text += '\n');
    }
    file.finish();
  }

  void write_summary(std::span<const Outcome> outcomes) {
    std::optional<std::int64_t> first;
    std::vector<Value> failed;
    for (const Outcome& outcome : outcomes) {
      if (outcome.verdict == Verdict::failed) failed.push_back(summary(outcome, first));
    }
    const Value count = integer(static_cast<std::int64_t>(failed.size()));
    std::string text;
    append_json(text, records_.values,
                object({{"first_violation_step", step(first)},
                        {"distinct_invariants_violated", count},
                        {"violations", records_.values.list(failed)}}),
                indent);
    TextFile file(folder_ / "violations_summary.json");
    file.append(text += '\n');
    file.finish();
  }

 private:
  using Named = std::pair<std::string_view, Value>;

  Value object(std::initializer_list<Named> named) {
    std::vector<Member> members;
    for (const auto& [name, value] : named) members.push_back({records_.values.name(name), value});
    return records_.values.object(members);
  }

  static Value step(const std::optional<std::int64_t>& step) {
    return step ? integer(*step) : none();
  }

  Value result(const Outcome& outcome) {
    const Value invariant = form_.write(*outcome.invariant);
    const Value passed = boolean(outcome.verdict != Verdict::failed);
    const Value triggered = boolean(outcome.verdict != Verdict::not_triggered);
    if (outcome.violations.empty()) {
      return object({{"invariant", invariant}, {"check_passed", passed}, {"triggered", triggered}});
    }
    const Violation& violation = outcome.violations.front();
    std::vector<Value> rows;
    for (const std::uint32_t number : violation.records)
      rows.push_back(table_.row(records_.records[number]));
    return object({{"invariant", invariant},
                   {"check_passed", passed},
                   {"triggered", triggered},
                   {"detection_time", integer(violation.time)},
                   {"detection_time_percentage", real(table_.share(violation.time))},
                   {"trace", records_.values.list(rows)}});
  }

  // `first` becomes the first step of all.
  Value summary(const Outcome& outcome, std::optional<std::int64_t>& first) {
    std::optional<std::int64_t> from, to;
    for (const Violation& violation : outcome.violations) {
      if (!violation.step) continue;
      from = std::min(from.value_or(*violation.step), *violation.step);
      to = std::max(to.value_or(*violation.step), *violation.step);
    }
    if (from) first = std::min(first.value_or(*from), *from);
    const Invariant& invariant = *outcome.invariant;
    return object(
        {{"display_name", records_.values.string(invariant.text)},
         {"relation_type", records_.values.string(records_.values.text(invariant.relation))},
         {"first_step", step(from)},
         {"last_step", step(to)},
         {"occurrences", integer(static_cast<std::int64_t>(outcome.violations.size()))}});
  }

  std::filesystem::path folder_;
  Records& records_;
  InvariantForm form_;
  Table table_;
};

std::filesystem::path name_of(const std::filesystem::path& trace) {
  const std::filesystem::path whole = std::filesystem::absolute(trace).lexically_normal();
  return whole.has_filename() ? whole.filename() : whole.parent_path().filename();
}

}  // namespace

void write_results(const ResultPaths& paths, Records& records, std::span<const Outcome> outcomes) {
  const std::filesystem::path folder = paths.folder / name_of(paths.trace);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_trouble("cannot make the folder", folder, error.value());
  TextFile copy(paths.folder / "invariants.json");
  copy.append(read_text(paths.invariants));
  copy.finish();
  ResultWriter writer(folder, records);
  writer.write_log("failed.log", Verdict::failed, outcomes);
  writer.write_log("passed.log", Verdict::passed, outcomes);
  writer.write_log("not_triggered.log", Verdict::not_triggered, outcomes);
  writer.write_summary(outcomes);
}

}  // namespace ttrace::invariant
