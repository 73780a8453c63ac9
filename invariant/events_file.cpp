// SPDX-License-Identifier: Apache-2.0
// Rows to records.
#include "invariant/events_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "invariant/events_values.hpp"

namespace ttrace::invariant {

namespace {

// The low three bits of a row's first number; the others are the number of what it is about.
enum class RowKind : std::uint8_t {
  pre,
  post,
  exception,
  state,
  state_values,
  content,
  site,
  loss
};

constexpr std::size_t kRowBytes = 32;
constexpr std::int64_t kHasData = 1, kHasGrad = 2, kGradUnknown = 4;

RowKind kind_of(std::int64_t code) { return static_cast<RowKind>(code & 7); }

bool has_time(RowKind kind) { return kind <= RowKind::state || kind == RowKind::loss; }

}  // namespace

EventNames::EventNames(Values& values)
    : call_id(values.name("func_call_id")),
      thread(values.name("thread_id")),
      process(values.name("process_id")),
      type(values.name("type")),
      function(values.name("function")),
      bound(values.name("is_bound_method")),
      object(values.name("obj_id")),
      time(values.name("time")),
      exception(values.name("exception")),
      message(values.name("exception_msg")),
      variable(values.name("var_name")),
      variable_type(values.name("var_type")),
      mode(values.name("mode")),
      place(values.name("dump_loc")),
      data(values.name("data")),
      grad(values.name("grad")),
      attribute_data(values.name("attributes.data")),
      attribute_grad(values.name("attributes.grad")),
      pre(values.string("function_call (pre)")),
      post(values.string("function_call (post)")),
      failed(values.string("function_call (post) (exception)")),
      change(values.string("state_change")),
      update(values.string("update")) {}

EventsFile::EventsFile(const std::filesystem::path& path, std::uint32_t number, bool call_ids)
    : blocks_(path), path_(path.string()), number_(number), call_ids_(call_ids) {}

void EventsFile::poll(Records& records, const EventNames& names) {
  Block block;
  while (blocks_.next(block)) take(block, records, names);
}

void EventsFile::report(Records& records) const {
  Damage damage;
  damage.of_events = true;
  damage.file = path_;
  damage.malformed = lost_;
  damage.first_malformed = first_lost_;
  damage.partial_tail = blocks_.cut();
  damage.last_step = row_step_;
  if (lost_ > 0 || damage.partial_tail) records.damage.push_back(damage);
  if (nan_loss_.count > 0) records.nan_losses.push_back(nan_loss_);
}

void EventsFile::take(const Block& block, Records& records, const EventNames& names) {
  std::string_view bytes = block.payload;
  switch (block.kind) {
    case BlockKind::process: {
      Value found;
      if (take_value(bytes, records.values, found) && found.kind == Kind::object) {
        process_ = records.values.member(found, records.values.name("pid")).integer;
      }
      return;
    }
    case BlockKind::definitions:
      return define(block, records.values);
    case BlockKind::functions:
      return add_functions(block, records);
    case BlockKind::meta:
      return add_meta(block, records.values);
    case BlockKind::rows:
      return add_rows(block, records, names);
  }
}

void EventsFile::move_to(std::int64_t time) {
  while (meta_ + 1 < metas_.size() && metas_[meta_ + 1].since <= time) ++meta_;
}

std::span<const Field> EventsFile::meta() const {
  return meta_ < metas_.size() ? std::span<const Field>(metas_[meta_].fields)
                               : std::span<const Field>();
}

// ---- rows ----

void EventsFile::add_rows(const Block& block, Records& records, const EventNames& names) {
  const std::size_t count = block.payload.size() / kRowBytes;
  if (count == 0) return;
  std::vector<std::int64_t> numbers(count * 4);
  std::memcpy(numbers.data(), block.payload.data(), count * kRowBytes);
  rows_since_meta_ = true;
  meta_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Row row(numbers.data() + i * 4, 4);
    ++rows_;
    if (has_time(kind_of(row[0]))) move_to(row[1]);
    bool known = true;
    switch (kind_of(row[0])) {
      case RowKind::pre:
        known = add_call(row, block.tag, records, names);
        break;
      case RowKind::post:
      case RowKind::exception:
        known = add_end(row, block.tag, records, names);
        break;
      case RowKind::state:
        known = i + 1 < count &&
                add_state(row, Row(numbers.data() + i * 4 + 4, 4), block.tag, records, names);
        break;
      case RowKind::state_values:
        break;
      case RowKind::content:
        known = add_content(row, block.tag);
        break;
      case RowKind::site:
        known = add_site(row, block.tag);
        break;
      case RowKind::loss:
        add_loss(row, block.tag);
        break;
    }
    if (meta_ < metas_.size()) row_step_ = metas_[meta_].step;
    if (!known) {
      blocks_.damaged("holds an event (" + std::to_string(rows_) +
                      ") of what was not defined before: a block is missing");
    }
  }
}

Record EventsFile::make(Row row, std::uint64_t thread, RecordKind kind) {
  Record record;
  record.kind = kind;
  record.file = number_;
  record.line = static_cast<std::uint32_t>(rows_);
  record.time = row[1];
  record.process = process_;
  record.thread = static_cast<std::int64_t>(thread);
  record.fields.reserve(10 + meta().size());
  return record;
}

// The fields that all calls begin with.
void EventsFile::add_place(Record& record, const EventNames& names) const {
  record.fields.push_back({names.thread, integer(record.thread)});
  record.fields.push_back({names.process, integer(record.process)});
  record.fields.insert(record.fields.end(), meta().begin(), meta().end());
  record.fields.push_back({names.type, record.kind == RecordKind::pre    ? names.pre
                                       : record.kind == RecordKind::post ? names.post
                                                                         : names.failed});
}

void EventsFile::add_call_end(Record& record, const Call& call, bool bound,
                              const EventNames& names) const {
  record.fields.push_back({names.bound, boolean(bound)});
  record.fields.push_back({names.object, bound ? integer(call.object) : none()});
  record.fields.push_back({names.time, integer(record.time)});
}

bool EventsFile::add_call(Row row, std::uint64_t thread, Records& records,
                          const EventNames& names) {
  const auto found = functions_.find(row[0] >> 3);
  if (found == functions_.end()) return false;
  const Function& function = found->second;
  Thread& stack = threads_[thread];
  Call call{row[0] >> 3, 0, row[3], {}};
  const std::array<std::uint64_t, 4> identity = {number_, static_cast<std::uint64_t>(process_),
                                                 thread, stack.calls++};
  call.number = XXH3_64bits(identity.data(), sizeof identity);
  Record record = make(row, thread, RecordKind::pre);
  record.call = call.number;
  record.function = function.name.ref;
  if (call_ids_) {
    // Of one length, so that their order is the order of time within a thread.
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%016llx%016llx_%020llu",
                  static_cast<unsigned long long>(process_),
                  static_cast<unsigned long long>(thread), static_cast<unsigned long long>(row[1]));
    call.id = records.values.string(std::string(text.data()) + "_" + std::to_string(stack.calls));
    record.fields.push_back({names.call_id, call.id});
  }
  add_place(record, names);
  record.fields.push_back({names.function, function.name});
  add_call_end(record, call, function.bound, names);
  if (const Definition* given = definition(row[2])) {
    record.args = given->args;
    record.kwargs = given->kwargs;
    if (!stack.contents.empty() && !call_ids_) {
      record.args = with_contents(records.values, record.args, stack.contents);
      record.kwargs = with_contents(records.values, record.kwargs, stack.contents);
    }
  }
  stack.contents.clear();
  call.site = stack.site != 0 ? stack.site : stack.open.empty() ? 0 : stack.open.back().site;
  record.site = call.site;
  stack.site = 0;
  stack.open.push_back(call);
  records.records.push_back(std::move(record));
  return true;
}

bool EventsFile::add_content(Row row, std::uint64_t thread) {
  const Definition* const argument = definition(row[0] >> 3);
  if (argument == nullptr || argument->value.kind != Kind::string) return false;
  threads_[thread].contents.push_back({argument->value.ref, row[1]});
  return true;
}

bool EventsFile::add_site(Row row, std::uint64_t thread) {
  const Definition* const place = definition(row[0] >> 3);
  if (place == nullptr || place->value.kind != Kind::string) return false;
  threads_[thread].site = place->value.ref;
  return true;
}

void EventsFile::add_loss(Row row, std::uint64_t thread) {
  if (!std::isnan(std::bit_cast<double>(row[2])) || nan_loss_.count++ > 0) return;
  const std::vector<Call>& open = threads_[thread].open;
  nan_loss_.file = number_;
  nan_loss_.line = static_cast<std::uint32_t>(rows_);
  nan_loss_.process = process_;
  nan_loss_.step = meta_ < metas_.size() ? metas_[meta_].step.value_or(0) : 0;
  nan_loss_.site = open.empty() ? 0 : open.back().site;
}

bool EventsFile::add_end(Row row, std::uint64_t thread, Records& records, const EventNames& names) {
  const auto found = functions_.find(row[0] >> 3);
  if (found == functions_.end()) return false;
  std::vector<Call>& open = threads_[thread].open;
  // Calls above it have lost their ends.
  const auto top = std::find_if(open.rbegin(), open.rend(),
                                [&](const Call& call) { return call.function == row[0] >> 3; });
  if (top == open.rend()) {  // began before the recording: in the process that was forked
    if (lost_++ == 0) first_lost_ = rows_;
    return true;
  }
  open.erase(top.base(), open.end());
  const Call call = open.back();
  open.pop_back();
  const bool failed = kind_of(row[0]) == RowKind::exception;
  Record record = make(row, thread, failed ? RecordKind::exception : RecordKind::post);
  record.call = call.number;
  record.site = call.site;
  record.function = found->second.name.ref;
  if (call.id.present()) record.fields.push_back({names.call_id, call.id});
  add_place(record, names);
  record.fields.push_back({names.function, found->second.name});
  if (failed && !add_error(record, row[2], records.values, names)) return false;
  add_call_end(record, call, found->second.bound, names);
  const Definition* const result = failed ? nullptr : definition(row[2]);
  if (result != nullptr) record.returns = result->value;
  records.records.push_back(std::move(record));
  return true;
}

// "ValueError\nwhat it says"
bool EventsFile::add_error(Record& record, std::int64_t number, Values& values,
                           const EventNames& names) {
  const Definition* const found = definition(number);
  if (found == nullptr || found->value.kind != Kind::string) return false;
  const std::string text(values.text(found->value));
  const std::size_t end = std::min(text.find('\n'), text.size());
  record.fields.push_back({names.exception, values.string(text.substr(0, end))});
  record.fields.push_back(
      {names.message, values.string(end < text.size() ? text.substr(end + 1) : "")});
  return true;
}

// ---- states ----

void EventsFile::expand_state(Definition& definition, Values& values, const EventNames& names) {
  definition.expanded = true;
  if (definition.value.kind != Kind::object) return;
  const std::span<const Member> typed = values.members(definition.value);
  if (typed.size() != 1 || typed[0].value.kind != Kind::object) return;
  definition.variable_type = typed[0].name;
  const std::span<const Member> found = values.members(typed[0].value);
  const std::vector<Member> members(found.begin(), found.end());
  for (const Member& member : members) {
    if (member.name == names.data || member.name == names.grad) continue;
    const std::string column = "attributes." + std::string(values.text(member.name));
    definition.state.push_back({values.name(column), member.value});
  }
}

bool EventsFile::add_state(Row row, Row contents, std::uint64_t thread, Records& records,
                           const EventNames& names) {
  Values& values = records.values;
  const Definition* const variable = definition(row[0] >> 3);
  const Definition* const place = definition(row[3]);
  Definition* const described = definition(row[2]);
  if (variable == nullptr || described == nullptr || place == nullptr ||
      variable->value.kind != Kind::string || place->value.kind != Kind::string ||
      kind_of(contents[0]) != RowKind::state_values) {
    return false;
  }
  if (!described->expanded) expand_state(*described, values, names);
  if (described->variable_type == 0 && described->state.empty()) return false;
  Record record = make(row, thread, RecordKind::state);
  record.variable = variable->value.ref;
  const std::vector<Call>& open = threads_[thread].open;
  record.site = open.empty() ? 0 : open.back().site;
  record.variable_type = described->variable_type;
  Value type;
  type.kind = Kind::string;
  type.ref = described->variable_type;
  record.fields = {{names.variable, variable->value},  {names.variable_type, type},
                   {names.mode, names.update},         {names.place, place->value},
                   {names.process, integer(process_)}, {names.thread, integer(record.thread)},
                   {names.time, integer(record.time)}};
  record.fields.insert(record.fields.end(), meta().begin(), meta().end());
  const std::int64_t flags = contents[3];
  if ((flags & kHasData) != 0) {
    record.fields.push_back({names.attribute_data, integer(contents[1])});
  }
  if ((flags & kHasGrad) == 0) record.fields.push_back({names.attribute_grad, none()});
  if ((flags & (kHasGrad | kGradUnknown)) == kHasGrad) {
    record.fields.push_back({names.attribute_grad, integer(contents[2])});
  }
  record.fields.insert(record.fields.end(), described->state.begin(), described->state.end());
  record.fields.push_back({names.type, names.change});
  records.records.push_back(std::move(record));
  return true;
}

}  // namespace ttrace::invariant
