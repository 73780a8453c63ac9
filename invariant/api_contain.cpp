// SPDX-License-Identifier: Apache-2.0
// APIContain: while a function runs, another one is called, perhaps with certain arguments, or a
// variable changes. Everything on the same thread below the call counts, however deep; variables
// that a thread without calls changed count for all threads of its process.
#include <map>
#include <tuple>
#include <unordered_map>

#include "invariant/api_contain_propose.hpp"
#include "invariant/arguments.hpp"
#include "invariant/bits.hpp"
#include "invariant/change_pattern.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

struct Child {
  bool raised = false;
  Value arguments;               // object, or absent: any
  std::size_t plain = SIZE_MAX;  // the same child with any arguments
  Value before, after;           // of a variable
  bool variable = false;
};

struct Judged {
  std::size_t hypothesis;
  std::size_t child;
};

class Evaluator : public Listener {
 public:
  Evaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink), hypotheses_(hypotheses.begin(), hypotheses.end()) {
    for (std::size_t i = 0; i < hypotheses_.size(); ++i) add(i, *hypotheses_[i]);
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    if (call.thread >= threads_.size()) threads_.resize(call.thread + 1);
    threads_[call.thread].process = call.place.process;
    threads_[call.thread].frames.emplace_back();
    const auto pending = pending_.find(call.place.process);
    if (pending != pending_.end() &&
        pending->second.front().evidence.place.step < call.place.step) {
      judge_pending(call.place.process);
    }
  }

  void leave(const Call& call, std::size_t index) override {
    auto& frames = threads_[call.thread].frames;
    const Bits inside = std::move(frames[index]);
    frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(index));
    if (index > 0) {
      frames[index - 1].merge(inside);
      mark(call, frames[index - 1]);
    }
    if (call.raised) return;  // not all that it does was done
    const auto parent = parents_.find(call.function);
    if (parent == parents_.end()) return;
    for (const Judged& judged : parent->second) judge(call, judged, inside);
  }

  void state(const State& state) override {
    if (!state.observed) {  // sampled now and then: no call can be told to change anything
      if (!observed_) pending_.erase(state.place.process);
      sampled_ = true;
      return;
    }
    observed_ = true;
    judge_pending(state.place.process);
    for (const Change& change : state.changes) {
      const auto children = changes_.find({state.record->variable_type, change.attribute});
      if (children == changes_.end()) continue;
      for (const std::size_t child : children->second) {
        if (!admits(world_.values, children_[child].before, change.before)) continue;
        if (!admits(world_.values, children_[child].after, change.after)) continue;
        mark_open(state, child);
      }
    }
  }

  void end_of_trace() override {
    if (world_.loses_tail) return;
    while (!pending_.empty()) judge_pending(pending_.begin()->first);
  }

 private:
  struct Thread {
    std::int64_t process = 0;
    std::vector<Bits> frames;
  };
  struct Pending {
    std::size_t hypothesis;
    Example example;
    Evidence evidence;
  };

  void add(std::size_t hypothesis, const Invariant& invariant) {
    if (invariant.params.size() != 2) return;
    const Param& child = invariant.params[1];
    std::size_t number = SIZE_MAX;
    if (child.type == ParamType::api) {
      number = add_call(child);
    } else if (child.type == ParamType::variable_type) {
      number = children_.size();
      Child entry;
      entry.before = child.before;
      entry.after = child.after;
      entry.variable = true;
      children_.push_back(entry);
      changes_[{child.variable_type, child.attribute}].push_back(number);
    }
    if (number != SIZE_MAX) parents_[invariant.params[0].api].push_back({hypothesis, number});
  }

  std::size_t add_call(const Param& child) {
    auto& known = calls_[child.api];
    Child entry;
    entry.raised = child.exception.present();
    entry.arguments = stated_arguments(world_.values, child);
    for (const std::size_t other : known) {
      const Child& one = children_[other];
      if (one.raised == entry.raised && identical(one.arguments, entry.arguments)) return other;
    }
    if (entry.arguments.present()) {
      Param plain = child;
      plain.arguments = {};
      entry.plain = add_call(plain);
    }
    children_.push_back(entry);
    calls_[child.api].push_back(children_.size() - 1);
    return children_.size() - 1;
  }

  // Children that the call is.
  void mark(const Call& call, Bits& frame) {
    const auto entry = calls_.find(call.function);
    if (entry == calls_.end()) return;
    Value bound;
    for (const std::size_t number : entry->second) {
      const Child& child = children_[number];
      if (child.raised != call.raised) continue;
      if (child.arguments.present()) {
        if (!bound.present())
          bound = bound_arguments(world_, call.function, call.args, call.kwargs);
        if (!has(bound, child.arguments)) continue;
      }
      frame.set(number);
    }
  }

  [[nodiscard]] bool has(Value bound, Value wanted) const {
    for (const Member& member : world_.values.members(wanted)) {
      if (!world_.values.equal(world_.values.member(bound, member.name), member.value))
        return false;
    }
    return true;
  }

  void mark_open(const State& state, std::size_t child) {
    if (state.thread < threads_.size() && !threads_[state.thread].frames.empty()) {
      threads_[state.thread].frames.back().set(child);
      return;
    }
    for (Thread& thread : threads_) {
      if (thread.process == state.place.process && !thread.frames.empty()) {
        thread.frames.back().set(child);
      }
    }
  }

  void judge(const Call& call, const Judged& judged, const Bits& inside) {
    const bool held = inside.test(judged.child);
    const Example example{call.situation, 0, false};
    const Child& child = children_[judged.child];
    if (held) {
      sink_.example(judged.hypothesis, example, true);
      return;
    }
    Evidence evidence;
    evidence.place = call.place;
    if (child.variable) {  // the states may be still to come, or be lost
      if (sampled_ && !observed_) return;
      evidence.found = "no such change";
      pending_[call.place.process].push_back({judged.hypothesis, example, evidence});
      return;
    }
    if (!sink_.example(judged.hypothesis, example, false)) return;
    evidence.found = child.plain != SIZE_MAX && inside.test(child.plain)
                         ? "called with other arguments"
                         : "not called";
    sink_.report(judged.hypothesis, std::move(evidence));
  }

  void judge_pending(std::int64_t process) {
    const auto entry = pending_.find(process);
    if (entry == pending_.end()) return;
    for (Pending& pending : entry->second) {
      if (sink_.example(pending.hypothesis, pending.example, false)) {
        sink_.report(pending.hypothesis, std::move(pending.evidence));
      }
    }
    pending_.erase(entry);
  }

  World& world_;
  Sink& sink_;
  std::vector<const Invariant*> hypotheses_;
  std::vector<Child> children_;
  std::unordered_map<Name, std::vector<std::size_t>> calls_;
  std::map<std::pair<Name, Name>, std::vector<std::size_t>> changes_;
  std::unordered_map<Name, std::vector<Judged>> parents_;
  std::vector<Thread> threads_;
  bool sampled_ = false, observed_ = false;  // how states are recorded
  // Of a process: calls in which no change was seen, until a later state record or a later step
  // shows that none is missing.
  std::map<std::int64_t, std::vector<Pending>> pending_;
};

std::string arrow(const Values& values, const Param& child) {
  const auto side = [&](Value value) {
    const std::string text = value.present() ? printed(values, value) : "anything";
    return text == "non_zero" ? std::string("non-zero") : text;
  };
  return side(child.before) + " --> " + side(child.after);
}

// In the order of names, as positional and keyword arguments come in any.
std::string arguments_text(const Values& values, const Param& child) {
  std::map<std::string_view, Value> arguments;
  for (const Member& member : values.members(stated_arguments(values, child))) {
    arguments[values.text(member.name)] = typed(values, member.value).payload;
  }
  std::string text;
  for (const auto& [name, value] : arguments) {
    text += (text.empty() ? "" : ", ") + std::string(name) + "=" + printed(values, value);
  }
  return text;
}

class ApiContain : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "APIContainRelation"; }
  [[nodiscard]] std::string_view group() const override { return "parent_func_call_pre"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const Param& child = invariant.params[1];
    const std::string parent = short_name(values.text(invariant.params[0].api)) + "()";
    if (child.type != ParamType::api) {
      return parent + " changes " + short_name(values.text(child.variable_type)) + "." +
             std::string(values.text(child.attribute)) + ": " + arrow(values, child);
    }
    std::string text = parent + " always calls " + short_name(values.text(child.api)) + "()";
    if (child.exception.present()) return text + ", which raises";
    return child.arguments.present() ? text + " with " + arguments_text(values, child) : text;
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    const Param& child = invariant.params[1];
    const std::string parent = short_name(values.text(invariant.params[0].api));
    if (child.type != ParamType::api) {
      return "look at what " + parent + " works on: whether it holds the variables that are " +
             "trained, and whether they have gradients";
    }
    return "look at the call of " + parent + " and at what decides whether and how it calls " +
           short_name(values.text(child.api));
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return propose_api_contain(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<Evaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> api_contain_relation() { return std::make_unique<ApiContain>(); }

}  // namespace ttrace::invariant
