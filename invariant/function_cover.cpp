// SPDX-License-Identifier: Apache-2.0
// FunctionCover: whenever B is called, A was called since B's last call. The window of a call of B
// begins where B's last call ended (of the first one: with the thread) and ends where it begins.
#include <unordered_map>

#include "invariant/function_order.hpp"

namespace ttrace::invariant {
namespace {

class CoverEvaluator : public Listener {
 public:
  CoverEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : values_(world.values), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      if (!is_pair(*hypotheses[i])) continue;
      const auto& params = hypotheses[i]->params;
      times_.watch(params[0].api);
      times_.watch(params[1].api);
      covered_[params[1].api].push_back({i, times_.number(params[0].api), params[0].api});
    }
  }

  void enter(const Call& call, std::size_t /*index*/) override {
    const std::size_t number = times_.number(call.function);
    if (number == SIZE_MAX || !times_.enter(call, number)) return;
    const auto entry = covered_.find(call.function);
    if (entry == covered_.end()) return;
    const std::uint64_t since = times_.of(call.thread, number).ended;
    const Example example{call.situation, 0, false};
    for (const Covered& covered : entry->second) {
      const CallTimes::Last& other = times_.of(call.thread, covered.other);
      const bool held = other.began != 0 && other.began > since;
      if (!sink_.example(covered.hypothesis, example, held)) continue;
      Evidence evidence;
      evidence.place = call.place;
      evidence.found = "no call of " + short_name(values_.text(covered.function)) + "() before" +
                       (since == 0 ? "" : ", since the last time");
      sink_.report(covered.hypothesis, std::move(evidence));
    }
  }

  void leave(const Call& call, std::size_t /*index*/) override {
    const std::size_t number = times_.number(call.function);
    if (number != SIZE_MAX) times_.leave(call, number);
  }

 private:
  struct Covered {
    std::size_t hypothesis;
    std::size_t other;
    Name function;
  };

  const Values& values_;
  Sink& sink_;
  CallTimes times_;
  std::unordered_map<Name, std::vector<Covered>> covered_;
};

class FunctionCover : public FunctionOrder {
 public:
  [[nodiscard]] std::string_view name() const override { return "FunctionCoverRelation"; }
  [[nodiscard]] std::string_view group() const override { return "func_cover"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    const std::string each = function(values, invariant, 1) + "()";
    return "each call of " + each + " comes after one of " + function(values, invariant, 0) +
           "() since the last " + each;
  }

  [[nodiscard]] std::string cases(const Values& values, const Invariant& invariant) const override {
    return "calls of " + function(values, invariant, 1) + "()";
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look for the call of " + function(values, invariant, 0) + " before that of " +
           function(values, invariant, 1) + ": is it gone, or in another place?";
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<CoverEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> function_cover_relation() { return std::make_unique<FunctionCover>(); }

}  // namespace ttrace::invariant
