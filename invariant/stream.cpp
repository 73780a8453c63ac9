// SPDX-License-Identifier: Apache-2.0
#include "invariant/stream.hpp"

#include <algorithm>

namespace ttrace::invariant {
namespace {

// How far one process or file may be ahead of another before the other is not waited for: a
// launcher or a loader thread never gets to another step.
constexpr std::int64_t kAhead = 2;

// The step that a record is in; `before` if it does not say.
std::int64_t step_of(const Record& record, Columns& columns, std::int64_t before) {
  for (const Field& field : record.fields) {
    if (columns.of(field.column) != Column::step) continue;
    if (field.value.kind == Kind::integer) return field.value.integer;
    if (field.value.kind == Kind::real) return static_cast<std::int64_t>(field.value.real);
  }
  return before;
}

int compare_fields(const Values& values, const Record& a, const Record& b) {
  const std::size_t count = std::min(a.fields.size(), b.fields.size());
  for (std::size_t i = 0; i < count; ++i) {
    const int names = values.text(a.fields[i].column).compare(values.text(b.fields[i].column));
    if (names != 0) return names;
    if (const int order = values.compare(a.fields[i].value, b.fields[i].value)) return order;
  }
  return a.fields.size() < b.fields.size() ? -1 : a.fields.size() > b.fields.size() ? 1 : 0;
}

// Records of one time: by what they say, never by where they stand.
bool content_before(const Values& values, const Record& a, const Record& b) {
  if (a.thread != b.thread) return a.thread < b.thread;
  if (a.kind != b.kind) return a.kind < b.kind;
  const Name one = a.kind == RecordKind::state ? a.variable : a.function;
  const Name other = b.kind == RecordKind::state ? b.variable : b.function;
  if (one != other) return values.text(one) < values.text(other);
  if (a.call != b.call) return a.call < b.call;
  return compare_fields(values, a, b) < 0;
}

bool before(const Values& values, const Record& a, const Record& b) {
  if (a.process != b.process) return a.process < b.process;
  if (a.time != b.time) return a.time < b.time;
  return content_before(values, a, b);
}

// `records` of one step, sorted.
template <class Iterator>
void hand_on_step(Tracker& tracker, std::int64_t step, Iterator first, Iterator last) {
  for (Iterator record = first; record != last;) {
    const std::int64_t process = (*record)->process;
    for (; record != last && (*record)->process == process; ++record) tracker.take(**record, step);
    tracker.end_of_part(process, step);
  }
  tracker.end_of_step(step);
}

}  // namespace

void replay(World& world, std::span<const Record> records, Tracker& tracker) {
  struct Entry {
    std::int64_t step;
    const Record* record;
    const Record& operator*() const { return *record; }
    const Record* operator->() const { return record; }
  };
  std::map<std::pair<std::int64_t, std::uint32_t>, std::int64_t> reached;
  std::vector<Entry> order;
  order.reserve(records.size());
  for (const Record& record : records) {
    auto [last, added] = reached.try_emplace({record.process, record.file}, kNoStep);
    last->second = step_of(record, world.columns, last->second);
    order.push_back({last->second, &record});
  }
  std::sort(order.begin(), order.end(), [&](const Entry& a, const Entry& b) {
    return a.step != b.step ? a.step < b.step : before(world.values, *a.record, *b.record);
  });
  std::vector<const Record*> sorted(order.size());
  std::transform(order.begin(), order.end(), sorted.begin(),
                 [](const Entry& e) { return e.record; });
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && order[end].step == order[first].step) ++end;
    hand_on_step(tracker, order[first].step, sorted.begin() + static_cast<std::ptrdiff_t>(first),
                 sorted.begin() + static_cast<std::ptrdiff_t>(end));
    first = end;
  }
  tracker.end_of_trace();
}

std::int64_t Stream::push(Record record) {
  auto [last, added] = reached_.try_emplace({record.process, record.file}, kNoStep);
  const std::int64_t step = step_of(record, world_.columns, last->second);
  last->second = step;
  first_ = std::min(first_, step);
  if (step > done_) {
    steps_[step].push_back(std::move(record));
  } else {
    ++late_;
  }
  return step;
}

void Stream::advance(std::int64_t limit) {
  if (reached_.empty()) return;
  std::int64_t slowest = INT64_MAX;
  std::int64_t fastest = INT64_MIN;
  for (const auto& [who, step] : reached_) {
    slowest = std::min(slowest, step);
    fastest = std::max(fastest, step);
  }
  while (!steps_.empty()) {
    const std::int64_t step = steps_.begin()->first;
    const bool all_beyond = step < slowest && step > first_;
    if (step >= limit || (!all_beyond && step + kAhead > fastest)) return;
    hand_on(step);
  }
}

void Stream::finish() {
  while (!steps_.empty()) hand_on(steps_.begin()->first);
  tracker_.end_of_trace();
}

void Stream::hand_on(std::int64_t step) {
  const std::vector<Record> records = std::move(steps_.begin()->second);
  steps_.erase(steps_.begin());
  std::vector<const Record*> sorted(records.size());
  std::transform(records.begin(), records.end(), sorted.begin(),
                 [](const Record& r) { return &r; });
  std::sort(sorted.begin(), sorted.end(),
            [this](const Record* a, const Record* b) { return before(world_.values, *a, *b); });
  hand_on_step(tracker_, step, sorted.begin(), sorted.end());
  done_ = step;
}

}  // namespace ttrace::invariant
