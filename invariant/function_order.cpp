// SPDX-License-Identifier: Apache-2.0
#include "invariant/function_order.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "invariant/bits.hpp"

namespace ttrace::invariant {
namespace {

// Pairs are many: of more functions than these, those that are called most often are left out,
// because what runs all the time leads nothing and covers nothing.
constexpr std::size_t kFunctions = 160;

// What is called in fewer steps comes between two calls of another such function by chance.
constexpr std::uint64_t kOften = 4;

class OrderProposer : public Proposer {
 public:
  OrderProposer(World& world, Name relation)
      : world_(world),
        relation_(relation),
        covers_(world.values.text(relation) == "FunctionCoverRelation") {}

  void begin_trace(std::size_t trace) override {
    trace_ = trace;
    open_.clear();
    first_thread_ = threads_.size();
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    if (call.thread >= open_.size()) open_.resize(call.thread + 1);
    auto& open = open_[call.thread];
    const std::size_t number = number_of(call.function);
    open.push_back(number);
    Function& function = functions_[number];
    if (function.skipped) return;
    if (std::find(open.begin(), open.end() - 1, number) != open.end() - 1) return;
    note_callers(function, open);
    ++function.calls;
    if (function.trace != trace_) {
      function.trace = trace_;
      function.process = world_.process;
      function.last_step = INT64_MIN;
    }
    if (function.process == world_.process && function.last_step != call.place.step) {
      function.last_step = call.place.step;
      ++function.steps;
    }
    if (first_thread_ + call.thread >= threads_.size()) {
      threads_.resize(first_thread_ + call.thread + 1);
    }
    threads_[first_thread_ + call.thread].set(number);
  }

  void leave(const Call& call, std::size_t index) override {
    auto& open = open_[call.thread];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    const std::vector<std::size_t> pool = functions_with_an_order();
    std::vector<Invariant> result;
    for (const std::size_t a : pool) {
      for (const std::size_t b : pool) {
        if (a == b || !meet(a, b)) continue;
        Invariant invariant;
        invariant.relation = relation_;
        invariant.params.resize(2);
        invariant.params[0].api = functions_[a].name;
        invariant.params[1].api = functions_[b].name;
        invariant.weak = functions_[covers_ ? a : b].steps < kOften;
        result.push_back(std::move(invariant));
      }
    }
    return result;
  }

 private:
  struct Function {
    Name name = 0;
    bool skipped = false;
    std::uint64_t calls = 0;
    std::uint64_t steps = 0;  // in which it was called, in one process of each trace:
    std::int64_t process = 0;
    std::int64_t last_step = INT64_MIN;
    std::size_t trace = SIZE_MAX;
    Bits callers;  // functions that were open at every call; meaningful if calls > 0
  };

  std::size_t number_of(Name name) {
    const auto [entry, added] = numbers_.try_emplace(name, functions_.size());
    if (added) {
      Function function;
      function.name = name;
      function.skipped = ignored(world_.values.text(relation_), world_.values.text(name));
      functions_.push_back(std::move(function));
    }
    return entry->second;
  }

  void note_callers(Function& function, const std::vector<std::size_t>& open) {
    if (function.calls > 0 && !function.callers.any()) return;
    Bits callers;
    for (std::size_t i = 0; i + 1 < open.size(); ++i) {
      if (!functions_[open[i]].skipped) callers.set(open[i]);
    }
    if (function.calls == 0) {
      function.callers = std::move(callers);
    } else {
      function.callers.intersect(callers);
    }
  }

  std::vector<std::size_t> functions_with_an_order() {
    std::vector<std::size_t> pool;
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const Function& function = functions_[i];
      if (function.calls >= 2 && !function.callers.any()) pool.push_back(i);
    }
    std::ranges::sort(pool, [this](std::size_t a, std::size_t b) {
      const Function& one = functions_[a];
      const Function& other = functions_[b];
      if (one.calls != other.calls) return one.calls < other.calls;
      return world_.values.text(one.name) < world_.values.text(other.name);
    });
    if (pool.size() > kFunctions) pool.resize(kFunctions);
    return pool;
  }

  [[nodiscard]] bool meet(std::size_t a, std::size_t b) const {
    return std::ranges::any_of(
        threads_, [&](const Bits& thread) { return thread.test(a) && thread.test(b); });
  }

  World& world_;
  Name relation_;
  bool covers_;  // the first function is to come with the second, else the other way round
  std::size_t trace_ = 0;
  std::map<Name, std::size_t> numbers_;
  std::vector<Function> functions_;
  std::vector<std::vector<std::size_t>> open_;  // of each thread of this trace
  std::vector<Bits> threads_;                   // of all traces: which functions they called
  std::size_t first_thread_ = 0;
};

}  // namespace

std::unique_ptr<Proposer> propose_orders(World& world, Name relation) {
  return std::make_unique<OrderProposer>(world, relation);
}

CallTimes::Last& CallTimes::of(std::uint32_t thread, std::size_t function) {
  if (thread >= threads_.size()) threads_.resize(thread + 1);
  if (threads_[thread].size() < functions_.size()) threads_[thread].resize(functions_.size());
  return threads_[thread][function];
}

bool CallTimes::enter(const Call& call, std::size_t function) {
  return of(call.thread, function).open++ == 0;
}

bool CallTimes::leave(const Call& call, std::size_t function) {
  Last& last = of(call.thread, function);
  if (last.open > 0 && --last.open > 0) return false;
  last.began = call.began;
  last.ended = call.ended;
  return true;
}

bool is_pair(const Invariant& invariant) {
  return invariant.params.size() == 2 && invariant.params[0].type == ParamType::api &&
         invariant.params[1].type == ParamType::api;
}

}  // namespace ttrace::invariant
