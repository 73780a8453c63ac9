// SPDX-License-Identifier: Apache-2.0
// See trace.hpp: calls and changes of the whole trace or of a stage.
#include <algorithm>
#include <map>
#include <utility>

#include "invariant/compat/trace.hpp"

namespace ttrace::invariant::compat {

View::View(Trace& whole, std::vector<Row> of)
    : trace(whole),
      rows(std::move(of)),
      contexts_(whole.shared.values, whole.shared.signatures, whole.records.records, rows) {
  collect_calls();
  variables = collect_variables(trace, rows);
  collect_changes();
}

void View::collect_calls() {
  std::unordered_map<std::uint64_t, std::size_t> known;
  std::vector<Call> all;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> last;
  for (const Row row : rows) {
    const Record& record = trace.at(row);
    std::int64_t& time =
        last.try_emplace({record.process, record.thread}, record.time).first->second;
    time = std::max(time, record.time);
    if (record.kind == RecordKind::state) continue;
    const auto [entry, added] = known.try_emplace(record.call, all.size());
    if (added) all.emplace_back();
    Call& call = all[entry->second];
    call.function = record.function;
    if (record.kind == RecordKind::pre) {
      call.pre = row;
      call.begin = record.time;
    } else {
      call.post = row;
      call.end = record.time;
      call.exception = record.kind == RecordKind::exception;
    }
  }
  for (Call& call : all) {
    if (call.pre == kNoRow) continue;  // cut by a stage's border
    if (call.post == kNoRow) {
      if (std::ranges::find(trace.open, call.pre) == trace.open.end()) continue;
      const Record& pre = trace.at(call.pre);
      const std::int64_t end = last.at({pre.process, pre.thread});
      call.end = end < std::numeric_limits<std::int64_t>::max() ? end + 1 : end;
    }
    add_call(call);
  }
  for (Thread& thread : threads) {
    std::ranges::stable_sort(thread.calls, {}, [this](CallId id) { return calls[id].begin; });
  }
}

void View::add_call(Call call) {
  const Record& pre = trace.at(call.pre);
  const auto here = [&](const Thread& thread) {
    return thread.process == pre.process && thread.thread == pre.thread;
  };
  auto thread = std::ranges::find_if(threads, here);
  if (thread == threads.end()) {
    thread = threads.insert(thread, {pre.process, pre.thread, {}});
  }
  call.thread = static_cast<std::uint32_t>(thread - threads.begin());
  const auto id = static_cast<CallId>(calls.size());
  thread->calls.push_back(id);
  const auto [entry, added] = by_name_.try_emplace(call.function, functions.size());
  if (added) functions.push_back({call.function, {}});
  functions[entry->second].calls.push_back(id);
  calls.push_back(call);
}

void View::collect_changes() {
  std::uint32_t order = 0;
  for (const Variable& variable : variables) {
    std::vector<Change>& list = changes_[variable.process];
    for (const Attribute& attribute : variable.attributes) {
      for (std::size_t i = 1; i < attribute.states.size(); ++i) {
        list.push_back({order++, attribute.states[i].begin, variable.name, variable.type,
                        attribute.name, attribute.states[i - 1].value, attribute.states[i].value});
      }
    }
  }
  for (auto& [process, list] : changes_) std::ranges::stable_sort(list, {}, &Change::time);
}

std::span<const CallId> View::calls_in(const Call& call) const {
  const std::vector<CallId>& list = threads[call.thread].calls;
  const auto begin_of = [this](CallId id) { return calls[id].begin; };
  const auto first = std::ranges::upper_bound(list, call.begin, {}, begin_of);
  const auto end = std::ranges::lower_bound(first, list.end(), call.end, {}, begin_of);
  return {first, end};
}

std::vector<const Change*> View::changes_in(const Call& call) const {
  std::vector<const Change*> out;
  const auto found = changes_.find(threads[call.thread].process);
  if (found == changes_.end()) return out;
  auto change = std::ranges::lower_bound(found->second, call.begin, {}, &Change::time);
  for (; change != found->second.end() && change->time <= call.end; ++change) {
    out.push_back(&*change);
  }
  std::ranges::sort(out, {}, [](const Change* entry) { return entry->order; });
  return out;
}

const Function* View::find(Name function) const {
  const auto found = by_name_.find(function);
  return found == by_name_.end() ? nullptr : &functions[found->second];
}

Situation View::situation_of(Row row, const std::vector<Active>& managers) const {
  Situation out{{}, managers};
  for (const Field& field : trace.at(row).fields) {
    if (field.value.kind == Kind::list || field.value.kind == Kind::object) continue;
    if (may_name(trace.values().text(field.column))) out.fields.push_back(field);
  }
  return out;
}

SituationId View::situation(Row row) {
  const auto [entry, added] = situations_.try_emplace(row, 0);
  if (added) {
    const Record& record = trace.at(row);
    const auto& managers = contexts_.at(record.process, record.thread, record.time);
    entry->second = trace.shared.situations.add(situation_of(row, managers));
  }
  return entry->second;
}

Example View::example(Row first, Row second) {
  const Record& record = trace.at(first);
  const auto& managers = contexts_.at(record.process, record.thread, record.time);
  return {situation(first), trace.shared.situations.add(situation_of(second, managers)), true};
}

}  // namespace ttrace::invariant::compat
