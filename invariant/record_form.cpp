// SPDX-License-Identifier: Apache-2.0
#include "invariant/record_form.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace ttrace::invariant {

RecordForm::RecordForm(Values& values, const ReadOptions& options)
    : values_(values),
      options_(options),
      type_(values.name("type")),
      function_(values.name("function")),
      variable_(values.name("var_name")),
      variable_type_(values.name("var_type")),
      process_(values.name("process_id")),
      thread_(values.name("thread_id")),
      time_(values.name("time")),
      call_(values.name("func_call_id")),
      pre_(values.name("function_call (pre)")),
      post_(values.name("function_call (post)")),
      exception_(values.name("function_call (post) (exception)")),
      state_(values.name("state_change")),
      args_(values.name("args")),
      kwargs_(values.name("kwargs")),
      returns_(values.name("return_values")) {
  const auto [lowest, highest] =
      std::minmax({type_, function_, variable_, variable_type_, process_, thread_, time_, call_});
  lowest_ = lowest;
  highest_ = highest;
}

bool RecordForm::drops(std::string_view name) const {
  if (options_.keep_ids) return false;
  return name.find("_TRAINCHECK_") != std::string_view::npos ||
         name.find("_ML_DAIKON") != std::string_view::npos;
}

Value* RecordForm::place_of_typed(Name column, Record& record) const {
  if (column == args_) return &record.args;
  if (column == kwargs_) return &record.kwargs;
  if (column == returns_) return &record.returns;
  return nullptr;
}

bool RecordForm::complete(Record& record) const {
  Value type, function, variable, variable_type, process, thread, time, call;
  for (const Field& field : record.fields) {
    if (field.column < lowest_ || field.column > highest_) continue;
    if (field.column == type_) type = field.value;
    if (field.column == function_) function = field.value;
    if (field.column == variable_) variable = field.value;
    if (field.column == variable_type_) variable_type = field.value;
    if (field.column == process_) process = field.value;
    if (field.column == thread_) thread = field.value;
    if (field.column == time_) time = field.value;
    if (field.column == call_) call = field.value;
  }
  if (type.kind != Kind::string || process.kind != Kind::integer || thread.kind != Kind::integer ||
      time.kind != Kind::integer) {
    return false;
  }
  record.process = process.integer;
  record.thread = thread.integer;
  record.time = time.integer;
  if (type.ref == state_) {
    record.kind = RecordKind::state;
    record.variable = variable.ref;
    record.variable_type = variable_type.ref;
    return variable.kind == Kind::string && variable_type.kind == Kind::string;
  }
  if (type.ref == pre_) {
    record.kind = RecordKind::pre;
  } else if (type.ref == post_) {
    record.kind = RecordKind::post;
  } else if (type.ref == exception_) {
    record.kind = RecordKind::exception;
  } else {
    return false;
  }
  record.function = function.ref;
  record.call = values_.hash(call);
  return function.kind == Kind::string && call.kind == Kind::string;
}

bool RecordForm::read(Value object, Record& record) {
  if (object.kind != Kind::object) return false;
  record = {};
  irregular_ = false;
  std::string prefix;
  if (!flatten(object, prefix, record) || !complete(record)) return false;
  if (irregular_) record.original = without_ids(object);
  return true;
}

bool RecordForm::flatten(Value object, std::string& prefix, Record& record) {
  for (const Member& member : values_.members(object)) {
    const std::string_view name = values_.text(member.name);
    if (drops(name)) continue;
    irregular_ = irregular_ || name.find('.') != std::string_view::npos;
    Value* const typed = prefix.empty() ? place_of_typed(member.name, record) : nullptr;
    if (typed != nullptr) {
      *typed = without_ids(member.value);
      continue;
    }
    const std::size_t length = prefix.size();
    prefix += name;
    if (member.value.kind == Kind::object && !values_.members(member.value).empty()) {
      prefix += '.';
      if (!flatten(member.value, prefix, record)) return false;
    } else {
      add(values_.name(prefix), without_ids(member.value), record);
    }
    prefix.resize(length);
  }
  return true;
}

void RecordForm::add(Name column, Value value, Record& record) {
  if (irregular_) {  // only then a column can come twice
    const auto found = std::ranges::find(record.fields, column, &Field::column);
    if (found != record.fields.end()) {
      found->value = value;
      return;
    }
  }
  record.fields.push_back({column, value});
}

Value RecordForm::without_ids(Value value) {
  if (options_.keep_ids) return value;
  if (value.kind == Kind::list) {
    const std::span<const Value> elements = values_.elements(value);
    std::vector<Value> kept(elements.begin(), elements.end());
    for (Value& element : kept) element = without_ids(element);
    return values_.list(kept);
  }
  if (value.kind != Kind::object) return value;
  std::vector<Member> kept;
  for (const Member& member : values_.members(value)) {
    if (drops(values_.text(member.name))) continue;
    kept.push_back({member.name, without_ids(member.value)});
  }
  return values_.object(kept);
}

}  // namespace ttrace::invariant
