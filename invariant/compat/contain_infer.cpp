// SPDX-License-Identifier: Apache-2.0
// See contain.hpp: inference, by stage. All calls count; TrainCheck samples functions with many.
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "invariant/compat/contain.hpp"

namespace ttrace::invariant::compat {
namespace {

// A change of a variable when `type` is not 0, else a call.
struct Key {
  Name function = 0;
  Name type = 0;
  Name attribute = 0;
  Value before;
  Value after;
};

struct Seen {
  std::uint32_t call = 0;  // of the parent's calls
  std::uint32_t times = 0;
};

struct Child {
  Key key;
  std::vector<Seen> seen;         // by call
  std::uint64_t positive = 0;     // sum of times
  std::vector<Member> arguments;  // what all these calls had in common
};

// What one function's calls contain.
class Parent {
 public:
  Parent(View& view, const Function& function) : view_(view), function_(function) { scan(); }

  [[nodiscard]] const std::vector<Child>& children() const { return children_; }
  [[nodiscard]] std::size_t calls() const { return function_.calls.size(); }

 private:
  void scan() {
    for (std::uint32_t i = 0; i < function_.calls.size(); ++i) {
      const Call& call = view_.calls[function_.calls[i]];
      for (const Change* change : view_.changes_in(call)) {
        if (!view_.trace.tracked) break;
        see(place_of({0, change->type, change->attribute, change->before, change->after}), i);
      }
      for (const CallId id : view_.calls_in(call)) {
        const Call& inner = view_.calls[id];
        const std::size_t place = place_of({inner.function, 0, 0, {}, {}});
        see(place, i);
        narrow(children_[place], inner);
      }
    }
  }

  void see(std::size_t place, std::uint32_t call) {
    Child& child = children_[place];
    ++child.positive;
    if (child.seen.empty() || child.seen.back().call != call) child.seen.push_back({call, 0});
    ++child.seen.back().times;
  }

  // Keeps the arguments that this call has, too.
  void narrow(Child& child, const Call& call) {
    const Record& pre = view_.trace.at(call.pre);
    if (child.positive == 1) {
      child.arguments = view_.trace.bound(pre, false);
      return;
    }
    if (child.arguments.empty()) return;
    const std::vector<Member> others = view_.trace.bound(pre, false);
    std::erase_if(child.arguments, [&](const Member& member) {
      const auto other = std::ranges::find(others, member.name, &Member::name);
      return other == others.end() || !view_.trace.values().equal(member.value, other->value);
    });
  }

  std::size_t place_of(const Key& key) {
    const Values& values = view_.trace.values();
    std::uint64_t hash = key.function;
    if (key.type != 0) {
      hash = std::uint64_t{key.type} << 32 | key.attribute;
      hash ^= values.hash(key.before) * 3 + values.hash(key.after) * 7;
    }
    const auto [begin, end] = places_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      const Key& known = children_[entry->second].key;
      const bool same = known.function == key.function && known.type == key.type &&
                        known.attribute == key.attribute &&
                        (key.type == 0 || (values.equal(known.before, key.before) &&
                                           values.equal(known.after, key.after)));
      if (same) return entry->second;
    }
    places_.emplace(hash, children_.size());
    children_.push_back({key, {}, 0, {}});
    return children_.size() - 1;
  }

  View& view_;
  const Function& function_;
  std::vector<Child> children_;  // in the order in which they were met
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
};

double log_likelihood(std::uint64_t positive, std::uint64_t negative) {
  const double x = 0.1 * (static_cast<double>(positive) - static_cast<double>(negative));
  return x > 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

double log_mean(const std::vector<double>& logs) {
  const double most = *std::ranges::max_element(logs);
  double sum = 0;
  for (const double value : logs) sum += std::exp(value - most);
  return most + std::log(sum / static_cast<double>(logs.size()));
}

// The same change, whatever the values: all changes of an attribute joined to one child, if that
// is likelier than they are each.
std::optional<Child> join(Values& values, std::size_t calls, const std::vector<const Child*>& of) {
  constexpr double kLikelier = 1.3;
  std::vector<double> logs;
  std::vector<bool> contains(calls);
  Child out{of[0]->key, {}, 0, {}};
  for (const Child* child : of) {
    logs.push_back(log_likelihood(child->positive, calls - child->seen.size()));
    for (const Seen& seen : child->seen) {
      if (contains[seen.call]) continue;
      contains[seen.call] = true;
      out.seen.push_back({seen.call, 1});
    }
  }
  out.positive = out.seen.size();
  const double joined = log_likelihood(out.positive, calls - out.positive);
  if (joined - log_mean(logs) < std::log(kLikelier)) return std::nullopt;
  std::vector<Value> before;
  std::vector<Value> after;
  for (const Child* child : of) {
    before.push_back(child->key.before);
    after.push_back(child->key.after);
  }
  const std::optional<Value> old_word = generalise(values, before);
  const std::optional<Value> new_word = generalise(values, after);
  if (!old_word || !new_word) return std::nullopt;
  out.key.before = *old_word;
  out.key.after = *new_word;
  return out;
}

class Inference {
 public:
  Inference(Context& context, View& view, std::vector<Value> stages)
      : context_(context), view_(view), stages_(std::move(stages)) {}

  void run(const Sink& sink) {
    Trace& trace = context_.trace;
    for (const Function& function : view_.functions) {
      const auto* parameters = trace.shared.signatures.find(function.name);
      if (trace.skipped(function.name) || parameters == nullptr || parameters->empty()) continue;
      propose(function, Parent(view_, function), sink);
    }
  }

 private:
  void propose(const Function& function, const Parent& parent, const Sink& sink) {
    std::map<std::pair<Name, Name>, std::vector<const Child*>> changes;
    for (const Child& child : parent.children()) {
      if (child.key.type == 0) {
        take(function, child, sink);
      } else {
        changes[{child.key.type, child.key.attribute}].push_back(&child);
      }
    }
    for (const auto& [what, list] : changes) {
      const auto joined = join(context_.trace.values(), parent.calls(), list);
      if (joined) {
        take(function, *joined, sink);
      } else {
        for (const Child* child : list) take(function, *child, sink);
      }
    }
  }

  [[nodiscard]] Param child_param(const Child& child) {
    if (child.key.type == 0) {
      Param out = api_param(child.key.function);
      if (!child.arguments.empty()) {
        out.arguments = context_.trace.values().object(child.arguments);
      }
      return out;
    }
    Param out = variable_param(child.key.type, child.key.attribute);
    out.before = child.key.before;
    out.after = child.key.after;
    return out;
  }

  void take(const Function& function, const Child& child, const Sink& sink) {
    Hypothesis out;
    out.params = {api_param(function.name), child_param(child)};
    out.stages = stages_;
    gather(function, child, view_, out);
    if (&view_ == &context_.view) return sink(std::move(out));
    const Examples local = std::move(out.examples);
    out.condition = find_condition(context_.trace.values(), context_.trace.shared.situations, local,
                                   {{}, true});
    if (!out.condition) return;
    gather(function, child, context_.view, out);
    const auto agree = [](const auto& a, const auto& b) {
      return std::ranges::equal(
          a, b, {}, [](const CountedExample& entry) { return entry.example.first; },
          [](const CountedExample& entry) { return entry.example.first; });
    };
    if (!agree(local.positive, out.examples.positive) ||
        !agree(local.negative, out.examples.negative)) {
      out.condition.reset();
    }
    sink(std::move(out));
  }

  // The examples with the situations as `view` sees them.
  void gather(const Function& function, const Child& child, View& view, Hypothesis& out) {
    const auto example = [&](std::uint32_t call) {
      return view.example(view_.calls[function.calls[call]].pre);
    };
    std::vector<bool> contains(function.calls.size());
    for (const Seen& seen : child.seen) {
      contains[seen.call] = true;
      context_.gatherer.add(example(seen.call), true, seen.times);
    }
    for (std::uint32_t i = 0; i < contains.size(); ++i) {
      if (!contains[i]) context_.gatherer.add(example(i), false);
    }
    context_.gatherer.finish(out);
  }

  Context& context_;
  View& view_;
  std::vector<Value> stages_;
};

}  // namespace

void infer_contain(Context& context, const Sink& sink) {
  const std::vector<Value>& stages = context.trace.stages;
  if (stages.empty()) return Inference(context, context.view, {}).run(sink);
  Merged merged(context.trace.values());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Inference(context, *context.by_stage()[i], {stages[i]}).run([&](Hypothesis&& out) {
      merged.add(std::move(out));
    });
  }
  for (Hypothesis& hypothesis : merged.all) sink(std::move(hypothesis));
}

}  // namespace ttrace::invariant::compat
