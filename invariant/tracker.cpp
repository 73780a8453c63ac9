// SPDX-License-Identifier: Apache-2.0
#include "invariant/tracker.hpp"

#include <algorithm>

#include "invariant/arguments.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::int64_t kMetaLimit = 1 << 16;  // ranks and sizes, not times or losses

bool same_fields(const std::vector<Field>& a, const std::vector<Field>& b) {
  return std::ranges::equal(a, b, [](const Field& one, const Field& other) {
    return one.column == other.column && identical(one.value, other.value);
  });
}

bool of_the_first_steps(Value value) {
  return value.kind == Kind::integer && value.integer <= kFirstSteps;
}

// Whether a clause may ask for it; lists and objects are no values of clauses.
bool may_ask(Value value) {
  switch (value.kind) {
    case Kind::none:
    case Kind::boolean:
    case Kind::string:
      return true;
    case Kind::integer:
      return value.integer < kMetaLimit && value.integer > -kMetaLimit;
    default:
      return false;
  }
}

std::int64_t object_of(const Record& record, Columns& columns) {
  for (const Field& field : record.fields) {
    if (columns.of(field.column) == Column::object && field.value.kind == Kind::integer) {
      return field.value.integer;
    }
  }
  return 0;
}

}  // namespace

Tracker::Tracker(World& world, std::span<Listener* const> listeners)
    : world_(world),
      listeners_(listeners.begin(), listeners.end()),
      process_id_(world.name("process_id")),
      var_name_(world.name("var_name")),
      var_type_(world.name("var_type")) {}

std::uint32_t Tracker::thread_of(std::int64_t process, std::int64_t thread) {
  const auto [entry, added] =
      thread_numbers_.try_emplace({process, thread}, static_cast<std::uint32_t>(threads_.size()));
  if (added) threads_.emplace_back();
  return entry->second;
}

Place Tracker::place_of(const Record& record, std::int64_t step) {
  Place place;
  place.file = record.file;
  place.line = record.line;
  place.time = record.time;
  place.process = record.process;
  place.thread = record.thread;
  place.step = step;
  place.variable = record.kind == RecordKind::state;
  place.site = record.site;
  place.what = place.variable ? record.variable : record.function;
  for (const Field& field : record.fields) {
    if (world_.columns.of(field.column) != Column::stage) continue;
    if (field.value.kind != Kind::string) continue;
    place.stage = field.value.ref;
    place.staged = true;
  }
  return place;
}

void Tracker::read_meta(const Record& record) {
  meta_.clear();
  for (const Field& field : record.fields) {
    const Column column = world_.columns.of(field.column);
    switch (column) {
      case Column::step:
      case Column::counter: {
        const bool early = column == Column::step && of_the_first_steps(field.value);
        if (early || world_.counted.contains(field.column)) meta_.push_back(field);
        break;
      }
      case Column::stage:
      case Column::meta:
        if (may_ask(field.value)) meta_.push_back(field);
        break;
      default:
        break;
    }
  }
}

SituationId Tracker::situation_of(const Record& record, Thread& thread) {
  read_meta(record);
  if (thread.managers_version != thread.managers.version() || !same_fields(thread.meta, meta_)) {
    thread.situation = world_.situations.add({meta_, thread.managers.active(world_.values)});
    thread.meta = meta_;
    thread.managers_version = thread.managers.version();
  }
  return thread.situation;
}

SituationId Tracker::situation_of_state(const Record& record, Thread& thread) {
  read_meta(record);
  Situation situation{meta_, thread.managers.active(world_.values)};
  situation.fields.push_back({process_id_, integer(record.process)});
  situation.fields.push_back({var_name_, {Kind::string, {.ref = record.variable}}});
  situation.fields.push_back({var_type_, {Kind::string, {.ref = record.variable_type}}});
  for (const Field& field : record.fields) {
    const Column column = world_.columns.of(field.column);
    if (column != Column::attribute && column != Column::flag) continue;
    if (may_ask(field.value)) situation.fields.push_back(field);
  }
  return world_.situations.add(std::move(situation));
}

void Tracker::take(const Record& record, std::int64_t step) {
  world_.process = record.process;
  switch (record.kind) {
    case RecordKind::pre:
      enter(record, step);
      return;
    case RecordKind::post:
    case RecordKind::exception:
      leave(record, step);
      return;
    case RecordKind::state:
      state(record, step);
      return;
  }
}

void Tracker::enter(const Record& record, std::int64_t step) {
  const std::uint32_t number = thread_of(record.process, record.thread);
  Thread& thread = threads_[number];
  const std::string_view function = world_.values.text(record.function);
  if (const auto type = manager_class(function, "__init__"); !type.empty()) {
    objects_.made(record.process, object_of(record, world_.columns), world_.name(type),
                  manager_arguments(world_, record.function, record.args, record.kwargs));
  } else if (const auto left = manager_class(function, "__exit__"); !left.empty()) {
    thread.managers.pop(object_of(record, world_.columns), world_.name(left));
  }
  Call call;
  call.function = record.function;
  call.id = record.call;
  call.thread = number;
  call.situation = situation_of(record, thread);
  call.place = place_of(record, step);
  call.args = record.args;
  call.kwargs = record.kwargs;
  call.began = ++thread.events;
  thread.open.push_back(call);
  for (Listener* listener : listeners_) listener->enter(call, thread.open.size() - 1);
}

void Tracker::leave(const Record& record, std::int64_t /*step*/) {
  const std::uint32_t number = thread_of(record.process, record.thread);
  Thread& thread = threads_[number];
  std::size_t index = thread.open.size();
  while (index > 0 && thread.open[index - 1].id != record.call) --index;
  if (index-- == 0) {
    ++gaps_.never_began;
    return;
  }
  Call call = thread.open[index];
  call.returns = record.returns;
  call.raised = record.kind == RecordKind::exception;
  call.ended = ++thread.events;
  for (Listener* listener : listeners_) listener->leave(call, index);
  thread.open.erase(thread.open.begin() + static_cast<std::ptrdiff_t>(index));
  if (call.raised) return;
  const auto type = manager_class(world_.values.text(record.function), "__enter__");
  if (type.empty()) return;
  const Name name = world_.name(type);
  const std::int64_t object = object_of(record, world_.columns);
  thread.managers.push(object, {name, objects_.entered(world_, record.process, object, name)});
}

void Tracker::note_changes(const Record& record, Variable& variable) {
  attributes_.clear();
  changes_.clear();
  for (const Field& field : record.fields) {
    const Column column = world_.columns.of(field.column);
    const bool flag = column == Column::flag;
    if (!flag && column != Column::attribute && column != Column::content) continue;
    const Name attribute = world_.columns.attribute(field.column);
    attributes_.push_back({attribute, field.value});
    if (flag) continue;
    const auto last = std::ranges::find(variable.last, attribute, &Field::column);
    if (last == variable.last.end()) {
      variable.last.push_back({attribute, field.value});
    } else if (!world_.values.equal(last->value, field.value)) {
      changes_.push_back({attribute, last->value, field.value});
      last->value = field.value;
    }
  }
}

void Tracker::state(const Record& record, std::int64_t step) {
  const auto [entry, added] =
      variable_numbers_.try_emplace({record.process, record.variable, record.variable_type},
                                    static_cast<std::uint32_t>(variables_.size()));
  if (added) variables_.emplace_back();
  note_changes(record, variables_[entry->second]);
  State state;
  state.record = &record;
  state.variable = entry->second;
  state.thread = thread_of(record.process, record.thread);
  state.place = place_of(record, step);
  state.situation = situation_of_state(record, threads_[state.thread]);
  state.observed = std::ranges::any_of(record.fields, [this](const Field& field) {
    return world_.columns.of(field.column) == Column::mode;
  });
  state.attributes = attributes_;
  state.changes = changes_;
  for (Listener* listener : listeners_) listener->state(state);
}

void Tracker::end_of_part(std::int64_t process, std::int64_t step) {
  for (Listener* listener : listeners_) listener->end_of_part(process, step);
}

void Tracker::end_of_step(std::int64_t step) {
  for (Listener* listener : listeners_) listener->end_of_step(step);
}

void Tracker::end_of_trace() {
  for (const Thread& thread : threads_) gaps_.never_ended += thread.open.size();
  for (Listener* listener : listeners_) listener->end_of_trace();
}

}  // namespace ttrace::invariant
