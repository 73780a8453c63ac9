// SPDX-License-Identifier: Apache-2.0
// See contexts.hpp. A manager is active from the end of its __enter__ to the begin of its __exit__;
// TrainCheck finds both from the __init__ of the object, so that an object that is entered twice
// counts once.
#include "invariant/compat/contexts.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace ttrace::invariant::compat {
namespace {

constexpr std::string_view kEnter = ".__enter__";

enum class Role : std::uint8_t { init, enter, exit };

struct Event {
  std::uint32_t row = 0;
  std::int64_t time = 0;
};

// The events of one object: class, process, thread, id.
using ObjectKey = std::tuple<std::size_t, std::int64_t, std::int64_t, Kind, std::uint64_t>;

// The first event, in the order of rows, that is later than `time`.
class Later {
 public:
  void add(Event event) {
    sorted_ = sorted_ && (events_.empty() || events_.back().time <= event.time);
    events_.push_back(event);
  }
  [[nodiscard]] const Event* after(std::int64_t time) const {
    const auto is_later = [time](const Event& event) { return event.time > time; };
    const auto found = sorted_ ? std::ranges::partition_point(
                                     events_, [&](const Event& event) { return !is_later(event); })
                               : std::ranges::find_if(events_, is_later);
    return found == events_.end() ? nullptr : &*found;
  }

 private:
  std::vector<Event> events_;
  bool sorted_ = true;
};

struct Object {
  Later enters;
  Later exits;
};

struct Classes {
  std::vector<std::string> names;  // in the order in which one was first entered
  std::unordered_map<Name, std::pair<std::size_t, Role>> roles;  // by function
};

Classes find_classes(Values& values, std::span<const Record> records,
                     std::span<const std::uint32_t> rows) {
  Classes out;
  std::unordered_map<Name, bool> seen;
  for (const std::uint32_t row : rows) {
    const Record& record = records[row];
    if (record.kind == RecordKind::state || !seen.try_emplace(record.function, true).second) {
      continue;
    }
    const std::string_view function = values.text(record.function);
    if (!function.ends_with(kEnter) ||
        function.find("torch.autograd.grad_mode") != std::string_view::npos ||
        function.find("torch.autograd.profiler.record_function") != std::string_view::npos) {
      continue;
    }
    const std::string name(function.substr(0, function.size() - kEnter.size()));
    out.roles[values.name(name + ".__init__")] = {out.names.size(), Role::init};
    out.roles[record.function] = {out.names.size(), Role::enter};
    out.roles[values.name(name + ".__exit__")] = {out.names.size(), Role::exit};
    out.names.push_back(name);
  }
  return out;
}

// A typed value's content. TrainCheck wraps defaults twice, so that theirs stays an object.
Value content(const Values& values, Value typed) {
  if (typed.kind != Kind::object || values.members(typed).empty()) return typed;
  return values.members(typed)[0].value;
}

class Arguments {
 public:
  Arguments(Values& values, const Record& init) : values_(values), init_(init) {}

  Value bind(const std::vector<Parameter>* parameters) {
    if (init_.args.kind != Kind::object) return values_.object({});
    if (parameters != nullptr) {
      for (std::size_t i = 0; i < parameters->size(); ++i) {
        const Value typed = values_.member(init_.args, values_.name(std::to_string(i)));
        if (typed.present()) set((*parameters)[i].name, content(values_, typed));
      }
    }
    if (init_.kwargs.kind == Kind::object) {
      for (const Member& member : values_.members(init_.kwargs)) {
        set(member.name, content(values_, member.value));
      }
    }
    if (parameters != nullptr) {
      for (const Parameter& parameter : *parameters) {
        const bool given = std::ranges::find(bound_, parameter.name, &Member::name) != bound_.end();
        if (!given && parameter.fallback.present()) set(parameter.name, parameter.fallback);
      }
    }
    return values_.object(bound_);
  }

 private:
  void set(Name name, Value value) {
    const auto found = std::ranges::find(bound_, name, &Member::name);
    if (found != bound_.end()) {
      found->value = value;
    } else {
      bound_.push_back({name, value});
    }
  }

  Values& values_;
  const Record& init_;
  std::vector<Member> bound_;
};

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Active active;
};

void sweep(const std::vector<Interval>& intervals, std::vector<std::int64_t>& times,
           std::vector<std::vector<Active>>& active) {
  for (const Interval& interval : intervals) {
    times.push_back(interval.begin);
    times.push_back(interval.end);
  }
  std::ranges::sort(times);
  const auto rest = std::ranges::unique(times);
  times.erase(rest.begin(), rest.end());

  std::vector<std::size_t> begins(intervals.size());
  for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i;
  std::vector<std::size_t> ends = begins;
  std::ranges::stable_sort(begins, {}, [&](std::size_t i) { return intervals[i].begin; });
  std::ranges::stable_sort(ends, {}, [&](std::size_t i) { return intervals[i].end; });

  std::set<std::size_t> open;  // in the order of classes, then of rows
  const auto keep = [&] {
    std::vector<Active> now;
    for (const std::size_t i : open) {
      const auto found = std::ranges::find(now, intervals[i].active.manager, &Active::manager);
      if (found == now.end()) {
        now.push_back(intervals[i].active);
      } else {
        *found = intervals[i].active;
      }
    }
    active.push_back(std::move(now));
  };
  std::size_t next_begin = 0;
  std::size_t next_end = 0;
  for (const std::int64_t time : times) {
    for (; next_begin < begins.size() && intervals[begins[next_begin]].begin == time;
         ++next_begin) {
      open.insert(begins[next_begin]);
    }
    keep();
    for (; next_end < ends.size() && intervals[ends[next_end]].end == time; ++next_end) {
      open.erase(ends[next_end]);
    }
    keep();
  }
}

}  // namespace

Contexts::Contexts(Values& values, const Signatures& signatures, std::span<const Record> records,
                   std::span<const std::uint32_t> rows) {
  const Classes classes = find_classes(values, records, rows);
  if (classes.names.empty()) return;
  const Name object_id = values.name("obj_id");
  std::vector<std::vector<std::uint32_t>> inits(classes.names.size());
  std::map<ObjectKey, Object> objects;
  const auto key_of = [&](std::size_t type, const Record& record) {
    const Value id = record.field(object_id);
    return ObjectKey{type, record.process, record.thread, id.kind, id.bits};
  };
  for (const std::uint32_t row : rows) {
    const Record& record = records[row];
    if (record.kind == RecordKind::state) continue;
    const auto role = classes.roles.find(record.function);
    if (role == classes.roles.end()) continue;
    const auto [type, what] = role->second;
    const bool pre = record.kind == RecordKind::pre;
    if (what == Role::init && pre) inits[type].push_back(row);
    if (what == Role::enter && record.kind == RecordKind::post) {
      objects[key_of(type, record)].enters.add({row, record.time});
    }
    if (what == Role::exit && pre) objects[key_of(type, record)].exits.add({row, record.time});
  }

  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Interval>> intervals;
  for (std::size_t type = 0; type < inits.size(); ++type) {
    const Name manager = values.name(classes.names[type]);
    for (const std::uint32_t row : inits[type]) {
      const Record& init = records[row];
      const auto object = objects.find(key_of(type, init));
      if (object == objects.end()) continue;
      const Event* enter = object->second.enters.after(init.time);
      const Event* exit = enter == nullptr ? nullptr : object->second.exits.after(enter->time);
      if (exit == nullptr) continue;
      const Value arguments = Arguments(values, init).bind(signatures.find_manager(init.function));
      intervals[{init.process, init.thread}].push_back(
          {enter->time, exit->time, {manager, arguments}});
    }
  }
  for (const auto& [thread, list] : intervals) {
    Timeline& timeline = threads_[thread];
    sweep(list, timeline.times, timeline.active);
  }
}

const std::vector<Active>& Contexts::at(std::int64_t process, std::int64_t thread,
                                        std::int64_t time) const {
  static const std::vector<Active> kNone;
  const auto found = threads_.find({process, thread});
  if (found == threads_.end()) return kNone;
  const Timeline& timeline = found->second;
  const auto next = std::ranges::upper_bound(timeline.times, time);
  if (next == timeline.times.begin()) return kNone;
  const auto place = static_cast<std::size_t>(next - timeline.times.begin() - 1);
  return timeline.active[2 * place + (timeline.times[place] == time ? 0 : 1)];
}

}  // namespace ttrace::invariant::compat
