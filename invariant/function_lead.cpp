// SPDX-License-Identifier: Apache-2.0
// FunctionLead: A's call is followed by a call of B before A is called again. The window of a call
// of A begins where it ends and ends where A's next call begins. A's last call has no such end: it
// is judged once the thread has gone on, in the same stage, for longer than A ever took to come
// back.
#include <map>
#include <unordered_map>

#include "invariant/function_order.hpp"

namespace ttrace::invariant {
namespace {

class LeadEvaluator : public Listener {
 public:
  LeadEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : values_(world.values), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      if (!is_pair(*hypotheses[i])) continue;
      const auto& params = hypotheses[i]->params;
      times_.watch(params[0].api);
      times_.watch(params[1].api);
      leaders_[params[0].api].push_back({i, times_.number(params[1].api), params[1].api});
    }
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    if (call.thread >= threads_.size()) threads_.resize(call.thread + 1);
    Thread& thread = threads_[call.thread];
    if (call.place.staged) thread.stages[call.place.stage] = call.began;
    thread.last = call.began;
    const std::size_t number = times_.number(call.function);
    if (number == SIZE_MAX || !times_.enter(call, number)) return;
    const auto entry = leaders_.find(call.function);
    if (entry == leaders_.end()) return;
    Window& window = thread.windows[call.function];
    if (window.judging) {
      judge(call.thread, entry->second, window, " before it was called again");
      window.period = std::max(window.period, call.began - window.call.began);
    }
    window.judging = true;
    window.call = call;
    window.ended = 0;
  }

  void leave(const Call& call, std::size_t /*index*/) override {
    const std::size_t number = times_.number(call.function);
    if (number == SIZE_MAX || !times_.leave(call, number)) return;
    const auto window = threads_[call.thread].windows.find(call.function);
    if (window != threads_[call.thread].windows.end()) window->second.ended = call.ended;
  }

  void end_of_trace() override {
    for (std::uint32_t number = 0; number < threads_.size(); ++number) {
      for (auto& [function, window] : threads_[number].windows) {
        if (window.judging) judge_last(number, leaders_.at(function), window);
      }
    }
  }

 private:
  struct Leader {
    std::size_t hypothesis;
    std::size_t other;
    Name function;
  };
  struct Window {
    Call call;
    bool judging = false;
    std::uint64_t ended = 0;   // 0: still open
    std::uint64_t period = 0;  // the longest from one call to the next
  };
  struct Thread {
    std::map<Name, std::uint64_t> stages;  // when each was last seen
    std::uint64_t last = 0;
    std::unordered_map<Name, Window> windows;
  };

  [[nodiscard]] bool followed(std::uint32_t thread, const Leader& leader, const Window& window) {
    const CallTimes::Last& other = times_.of(thread, leader.other);
    return window.ended != 0 && other.began > window.ended;
  }

  void judge(std::uint32_t thread, const std::vector<Leader>& leaders, const Window& window,
             const char* when) {
    for (const Leader& leader : leaders) {
      tell(leader, window, followed(thread, leader, window), when);
    }
  }

  void judge_last(std::uint32_t number, const std::vector<Leader>& leaders, const Window& window) {
    const Thread& thread = threads_[number];
    const Place& place = window.call.place;
    const std::uint64_t until = place.staged ? thread.stages.at(place.stage) : thread.last;
    const bool over = window.period > 0 && until > window.call.began + window.period;
    for (const Leader& leader : leaders) {
      const bool held = followed(number, leader, window);
      if (held || over) tell(leader, window, held, " after the last time");
    }
  }

  void tell(const Leader& leader, const Window& window, bool held, const char* when) {
    if (!sink_.example(leader.hypothesis, {window.call.situation, 0, false}, held)) return;
    Evidence evidence;
    evidence.place = window.call.place;
    evidence.found = "no call of " + short_name(values_.text(leader.function)) + "()" + when;
    sink_.report(leader.hypothesis, std::move(evidence));
  }

  const Values& values_;
  Sink& sink_;
  CallTimes times_;
  std::unordered_map<Name, std::vector<Leader>> leaders_;
  std::vector<Thread> threads_;
};

class FunctionLead : public FunctionOrder {
 public:
  [[nodiscard]] std::string_view name() const override { return "FunctionLeadRelation"; }
  [[nodiscard]] std::string_view group() const override { return "func_lead"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const std::string each = function(values, invariant, 0) + "()";
    return "after each call of " + each + " comes one of " + function(values, invariant, 1) +
           "() before the next " + each;
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look for the call of " + function(values, invariant, 1) + " after that of " +
           function(values, invariant, 0) + ": is it gone, or in another place?";
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<LeadEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> function_lead_relation() { return std::make_unique<FunctionLead>(); }

}  // namespace ttrace::invariant
