// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_export.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace::invariant {

namespace {

using Thread = std::pair<std::int64_t, std::int64_t>;  // process and its thread

// Variables whose state was looked at by a call are told at the call.
class VariablesOfCalls {
 public:
  explicit VariablesOfCalls(Records& records)
      : records_(records),
        column_(records.values.name("proxy_obj_names")),
        place_(records.values.name("dump_loc")),
        object_(records.values.name("obj_id")) {}

  void add_all() {
    for (std::size_t at = 0; at < records_.records.size(); ++at) {
      const Record& record = records_.records[at];
      std::vector<std::size_t>& open = open_[{record.process, record.thread}];
      if (record.kind == RecordKind::pre) {
        open.push_back(at);
      } else if (record.kind == RecordKind::state) {
        note(record, open);
      } else {
        while (!open.empty() && records_.records[open.back()].call != record.call) open.pop_back();
        if (!open.empty()) open.pop_back();
      }
    }
    for (auto& [at, names] : named_) add(records_.records[at], names);
  }

 private:
  void note(const Record& state, const std::vector<std::size_t>& open) {
    const Value place = state.field(place_);
    const auto call = std::find_if(open.rbegin(), open.rend(), [&](std::size_t at) {
      return place.kind == Kind::string && records_.records[at].function == place.ref;
    });
    if (call == open.rend()) return;
    Values& values = records_.values;
    const std::string type(values.text(state.variable_type));
    const std::size_t dot = type.rfind('.');
    const std::array<Value, 2> name = {
        values.string(std::string(values.text(state.variable))),
        values.string(dot == std::string::npos ? type : type.substr(dot + 1))};
    named_[*call].push_back(values.list(name));
  }

  void add(Record& record, const std::vector<Value>& names) {
    const auto object = std::find_if(record.fields.begin(), record.fields.end(),
                                     [&](const Field& field) { return field.column == object_; });
    if (object == record.fields.end()) return;
    record.fields.insert(object + 1, {column_, records_.values.list(names)});
  }

  Records& records_;
  Name column_, place_, object_;
  std::map<Thread, std::vector<std::size_t>> open_;
  std::map<std::size_t, std::vector<Value>> named_;  // by call
};

}  // namespace

void arrange_as_traincheck(Records& records) {
  VariablesOfCalls(records).add_all();
  using Place = std::tuple<std::int64_t, std::int64_t, bool>;  // process, thread, states
  const auto place_of = [](const Record& record) {
    return Place{record.process, record.thread, record.kind == RecordKind::state};
  };
  std::map<Place, std::uint32_t> files;
  for (const Record& record : records.records) files.emplace(place_of(record), 0);
  records.files.clear();
  for (auto& [place, number] : files) {
    const auto& [process, thread, states] = place;
    number = static_cast<std::uint32_t>(records.files.size());
    records.files.push_back(std::string(states ? "trace_VAR_" : "trace_API_") +
                            std::to_string(process) + "_" + std::to_string(thread) + ".log");
  }
  std::vector<std::uint32_t> lines(files.size());
  for (Record& record : records.records) {
    record.file = files[place_of(record)];
    record.line = ++lines[record.file];
  }
  std::stable_sort(records.records.begin(), records.records.end(),
                   [](const Record& a, const Record& b) { return a.file < b.file; });
}

}  // namespace ttrace::invariant
