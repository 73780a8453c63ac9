// SPDX-License-Identifier: Apache-2.0
#include "invariant/api_contain_propose.hpp"

#include <map>
#include <set>
#include <tuple>

#include "invariant/arguments.hpp"
#include "invariant/bits.hpp"
#include "invariant/change_pattern.hpp"

namespace ttrace::invariant {
namespace {

struct ChildKey {
  Name function = 0;  // a call
  bool raised = false;
  bool variable = false;  // a change of (type, attribute)
  Name type = 0, attribute = 0;
  Value before, after;
  [[nodiscard]] auto key() const {
    return std::tuple(function, raised, variable, type, attribute, before.kind, before.bits,
                      after.kind, after.bits);
  }
  friend bool operator<(const ChildKey& a, const ChildKey& b) { return a.key() < b.key(); }
};

// What all calls of a child in a parent had in common: over all of them, and of the parents of
// one stage.
struct Common {
  Value all;
  Value last;  // the arguments met last
  Name last_stage = 0;
  std::map<Name, Value> by_stage;
  std::set<std::size_t> traces;
};

class ContainProposer : public Proposer {
 public:
  ContainProposer(World& world, Name relation) : world_(world), relation_(relation) {}

  void begin_trace(std::size_t trace) override {
    trace_ = trace;
    threads_.clear();
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    if (call.thread >= threads_.size()) threads_.resize(call.thread + 1);
    Frame frame;
    frame.function = call.function;
    frame.parent = !skipped(call.function);
    if (call.place.staged) frame.stage = call.place.stage;
    threads_[call.thread].process = call.place.process;
    threads_[call.thread].frames.push_back(std::move(frame));
  }

  void leave(const Call& call, std::size_t index) override {
    auto& frames = threads_[call.thread].frames;
    const Frame frame = std::move(frames[index]);
    frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(index));
    if (index > 0) {
      frames[index - 1].children.merge(frame.children);
      if (!skipped(call.function)) note_child(call, frames, index);
    }
    if (call.raised || !frame.parent) return;
    seen_[call.function].merge(frame.children);
  }

  void state(const State& state) override {
    if (!state.observed) return;
    for (const Change& change : state.changes) {
      ChildKey key;
      key.variable = true;
      key.type = state.record->variable_type;
      key.attribute = change.attribute;
      key.before = pattern_of(world_.values, change.before);
      key.after = pattern_of(world_.values, change.after);
      mark_open(state, number_of(key));
    }
  }

  std::vector<Invariant> proposals(std::size_t traces) override {
    std::vector<Invariant> result;
    for (const auto& [parent, children] : seen_) {
      children.for_each([&](std::size_t child) { propose(parent, child, traces, result); });
    }
    return result;
  }

 private:
  struct Frame {
    Name function = 0;
    bool parent = false;
    Name stage = 0;
    Bits children;
  };
  struct Thread {
    std::int64_t process = 0;
    std::vector<Frame> frames;
  };

  bool skipped(Name function) {
    const auto [entry, added] = skipped_.try_emplace(function, false);
    if (added) entry->second = ignored("APIContainRelation", world_.values.text(function));
    return entry->second;
  }

  std::size_t number_of(const ChildKey& key) {
    const auto [entry, added] = numbers_.try_emplace(key, keys_.size());
    if (added) keys_.push_back(key);
    return entry->second;
  }

  void note_child(const Call& call, std::vector<Frame>& frames, std::size_t index) {
    ChildKey key;
    key.function = call.function;
    key.raised = call.raised;
    frames[index - 1].children.set(number_of(key));
    if (call.raised) return;
    const Value arguments = configured_arguments(call);
    for (std::size_t i = 0; i < index; ++i) {
      if (frames[i].parent) note_arguments(frames[i], call.function, arguments);
    }
  }

  // Those that another run may have, too; `self` is no argument.
  Value configured_arguments(const Call& call) {
    const Value bound = bound_arguments(world_, call.function, call.args, call.kwargs);
    std::vector<Member> kept;
    for (const Member& member : world_.values.members(bound)) {
      const Typed entry = typed(world_.values, member.value);
      if (looks_configured(world_.values, entry.payload)) kept.push_back(member);
    }
    return world_.values.object(kept);
  }

  Value in_common(Value merged, Value arguments) {
    if (!merged.present()) return arguments;
    if (identical(merged, arguments)) return merged;
    std::vector<Member> kept;
    for (const Member& member : world_.values.members(merged)) {
      const Value other = world_.values.member(arguments, member.name);
      if (world_.values.equal(member.value, other)) kept.push_back(member);
    }
    return world_.values.object(kept);
  }

  void note_arguments(const Frame& parent, Name child, Value arguments) {
    Common& common = common_[{parent.function, child}];
    common.traces.insert(trace_);
    if (identical(common.last, arguments) && common.last_stage == parent.stage) return;
    common.last = arguments;
    common.last_stage = parent.stage;
    common.all = in_common(common.all, arguments);
    Value& stage = common.by_stage[parent.stage];
    stage = in_common(stage, arguments);
  }

  void mark_open(const State& state, std::size_t child) {
    if (state.thread < threads_.size() && !threads_[state.thread].frames.empty()) {
      threads_[state.thread].frames.back().children.set(child);
      return;
    }
    for (Thread& thread : threads_) {
      if (thread.process == state.place.process && !thread.frames.empty()) {
        thread.frames.back().children.set(child);
      }
    }
  }

  void propose(Name parent, std::size_t number, std::size_t traces,
               std::vector<Invariant>& result) {
    const ChildKey& key = keys_[number];
    Invariant invariant;
    invariant.relation = relation_;
    invariant.params.resize(2);
    invariant.params[0].api = parent;
    Param& child = invariant.params[1];
    if (key.variable) {
      child.type = ParamType::variable_type;
      child.variable_type = key.type;
      child.attribute = key.attribute;
      child.before = key.before;
      child.after = key.after;
      result.push_back(std::move(invariant));
      return;
    }
    child.api = key.function;
    if (key.raised) child.exception = world_.values.string("Exception");
    result.push_back(invariant);
    const auto common = common_.find({parent, key.function});
    if (key.raised || common == common_.end()) return;
    const bool one_run = traces > 1 && common->second.traces.size() < 2;
    std::vector<Value> candidates;
    add_candidate(common->second.all, one_run, candidates);
    for (const auto& [stage, arguments] : common->second.by_stage) {
      add_candidate(arguments, one_run, candidates);
    }
    for (const Value arguments : candidates) {
      invariant.params[1].arguments = state_arguments(world_, key.function, arguments);
      result.push_back(invariant);
    }
  }

  void add_candidate(Value arguments, bool one_run, std::vector<Value>& candidates) {
    if (arguments.kind != Kind::object) return;
    if (one_run) arguments = enum_like_of(arguments);
    if (world_.values.members(arguments).empty()) return;
    for (const Value other : candidates) {
      if (world_.values.equal(other, arguments)) return;
    }
    candidates.push_back(arguments);
  }

  Value enum_like_of(Value arguments) {
    std::vector<Member> kept;
    for (const Member& member : world_.values.members(arguments)) {
      const Value payload = typed(world_.values, member.value).payload;
      if (is_enum_like(world_.values, payload)) kept.push_back(member);
    }
    return world_.values.object(kept);
  }

  World& world_;
  Name relation_;
  std::size_t trace_ = 0;
  std::map<ChildKey, std::size_t> numbers_;
  std::vector<ChildKey> keys_;
  std::map<Name, Bits> seen_;
  std::map<std::pair<Name, Name>, Common> common_;
  std::map<Name, bool> skipped_;
  std::vector<Thread> threads_;
};

}  // namespace

std::unique_ptr<Proposer> propose_api_contain(World& world, Name relation) {
  return std::make_unique<ContainProposer>(world, relation);
}

}  // namespace ttrace::invariant
