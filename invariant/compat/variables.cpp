// SPDX-License-Identifier: Apache-2.0
// See trace.hpp: what variables were, from when to when.
#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "invariant/compat/trace.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr std::string_view kPrefix = "attributes.";

// "data" of "attributes.data"; empty when the column is none that has states.
std::string_view attribute_of(std::string_view column) {
  if (!column.starts_with(kPrefix) || column.find("_ML_DAIKON") != std::string_view::npos) {
    return {};
  }
  column.remove_prefix(kPrefix.size());
  const bool flag =
      column.starts_with("is_") || column.starts_with("has_") || column.starts_with("can_");
  return flag ? std::string_view() : column;
}

class Collector {
 public:
  explicit Collector(Trace& trace) : trace_(trace) {}

  Variable run(const std::vector<Row>& rows, std::int64_t end) {
    const Record& first = trace_.at(rows[0]);
    Variable out{first.process, first.variable, first.variable_type, {}};
    for (const Row row : rows) {
      for (const Field& field : trace_.at(row).fields) {
        const Name attribute = name_of(field.column);
        if (attribute != 0) add(out, attribute, field.value, row);
      }
    }
    for (Attribute& attribute : out.attributes) attribute.states.back().end = end;
    return out;
  }

 private:
  // The attribute's name, 0 when the column is none.
  Name name_of(Name column) {
    const auto [entry, added] = names_.try_emplace(column, 0);
    if (added) {
      const std::string_view text = attribute_of(trace_.values().text(column));
      if (!text.empty()) entry->second = trace_.values().name(text);
    }
    return entry->second;
  }

  void add(Variable& variable, Name name, Value value, Row row) const {
    auto attribute = std::ranges::find(variable.attributes, name, &Attribute::name);
    if (attribute == variable.attributes.end()) {
      attribute = variable.attributes.insert(attribute, {name, {}});
    }
    std::vector<State>& states = attribute->states;
    if (!states.empty() && trace_.values().equal(states.back().value, value)) {
      states.back().last = row;
      return;
    }
    const std::int64_t time = trace_.at(row).time;
    if (!states.empty()) states.back().end = time;
    states.push_back({value, time, time, row, row});
  }

  Trace& trace_;
  std::unordered_map<Name, Name> names_;
};

}  // namespace

const Attribute* Variable::find(Name attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

std::vector<Variable> collect_variables(Trace& trace, std::span<const Row> rows) {
  std::map<std::tuple<std::int64_t, Name, Name>, std::size_t> known;
  std::vector<std::vector<Row>> rows_of;
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const Row row : rows) {
    const Record& record = trace.at(row);
    end = std::max(end, record.time);
    if (record.kind != RecordKind::state) continue;
    const auto [entry, added] =
        known.try_emplace({record.process, record.variable, record.variable_type}, rows_of.size());
    if (added) rows_of.emplace_back();
    rows_of[entry->second].push_back(row);
  }
  Collector collector(trace);
  std::vector<Variable> out;
  for (std::vector<Row>& list : rows_of) {
    std::ranges::stable_sort(list, {}, [&](Row row) { return trace.at(row).time; });
    out.push_back(collector.run(list, end));
  }
  return out;
}

}  // namespace ttrace::invariant::compat
