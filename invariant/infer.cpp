// SPDX-License-Identifier: Apache-2.0
#include "invariant/infer.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "invariant/examples.hpp"
#include "invariant/implied.hpp"
#include "invariant/invariant_order.hpp"
#include "invariant/precondition.hpp"
#include "invariant/relation.hpp"
#include "invariant/separate.hpp"
#include "invariant/stage.hpp"
#include "invariant/stream.hpp"

namespace ttrace::invariant {
namespace {

// How often a hypothesis held in one process of each trace: ranks that do the same are no more
// evidence than one of them.
struct Support {
  std::uint64_t cases = 0;
  std::int64_t process = 0;  // of this trace
  std::size_t trace = SIZE_MAX;
};

class Collector : public Sink {
 public:
  Collector(const World& world, ExampleTallies& tallies, std::span<Support> supports,
            std::size_t first, std::size_t trace)
      : world_(world), tallies_(tallies), supports_(supports), first_(first), trace_(trace) {}
  bool example(std::size_t hypothesis, const Example& example, bool held) override {
    Tally& tally = tallies_.at(first_ + hypothesis, example);
    ++(held ? tally.held : tally.failed);
    Support& support = supports_[first_ + hypothesis];
    if (held && support.trace != trace_) support = {support.cases, world_.process, trace_};
    if (held && support.process == world_.process) ++support.cases;
    return false;
  }
  void report(std::size_t /*hypothesis*/, Evidence /*evidence*/) override {}

 private:
  const World& world_;
  ExampleTallies& tallies_;
  std::span<Support> supports_;
  std::size_t first_;  // of the relation's hypotheses
  std::size_t trace_;
};

// Hypotheses of one relation: a range of all.
struct Range {
  const Relation* relation;
  std::size_t first, last;
};

class Inferring {
 public:
  Inferring(Values& values, std::span<const TraceInput> traces, const Signatures* signatures,
            const InferOptions& options)
      : world_(values, signatures), traces_(traces), options_(options) {}

  Inference run() {
    propose();
    evaluate();
    for (const Range& range : ranges_) {
      for (std::size_t i = range.first; i < range.last; ++i) conclude(*range.relation, i);
    }
    result_.implied = drop_implied(world_.values, result_.invariants);
    std::ranges::sort(result_.invariants, [this](const Invariant& a, const Invariant& b) {
      return compare(world_.values, a, b) < 0;
    });
    std::ranges::sort(result_.rejected, [this](const auto& a, const auto& b) {
      return compare(world_.values, a.invariant, b.invariant) < 0;
    });
    return std::move(result_);
  }

 private:
  void propose() {
    std::vector<std::unique_ptr<Proposer>> proposers;
    std::vector<Listener*> listeners;
    for (const auto& relation : relations()) {
      proposers.push_back(relation->proposer(world_));
      listeners.push_back(proposers.back().get());
    }
    for (std::size_t trace = 0; trace < traces_.size(); ++trace) {
      for (const auto& proposer : proposers) proposer->begin_trace(trace);
      world_.loses_tail = traces_[trace].loses_tail;
      Tracker tracker(world_, listeners);
      replay(world_, traces_[trace].records, tracker);
      result_.gaps.never_began += tracker.gaps().never_began;
      result_.gaps.never_ended += tracker.gaps().never_ended;
    }
    for (std::size_t i = 0; i < proposers.size(); ++i) {
      const std::size_t first = hypotheses_.size();
      for (Invariant& proposal : proposers[i]->proposals(traces_.size())) {
        hypotheses_.push_back(std::move(proposal));
      }
      ranges_.push_back({relations()[i].get(), first, hypotheses_.size()});
    }
  }

  void evaluate() {
    tallies_ = std::make_unique<ExampleTallies>(hypotheses_.size());
    supports_.resize(hypotheses_.size());
    for (std::size_t number = 0; number < traces_.size(); ++number) {
      const TraceInput& trace = traces_[number];
      std::vector<std::unique_ptr<Collector>> collectors;
      std::vector<std::unique_ptr<Listener>> evaluators;
      std::vector<Listener*> listeners;
      world_.loses_tail = trace.loses_tail;
      for (const Range& range : ranges_) {
        std::vector<const Invariant*> mine;
        for (std::size_t i = range.first; i < range.last; ++i) mine.push_back(&hypotheses_[i]);
        collectors.push_back(
            std::make_unique<Collector>(world_, *tallies_, supports_, range.first, number));
        evaluators.push_back(range.relation->evaluator(world_, mine, *collectors.back()));
        listeners.push_back(evaluators.back().get());
      }
      Tracker tracker(world_, listeners);
      replay(world_, trace.records, tracker);
    }
    stages_ = Stages(world_);
  }

  void conclude(const Relation& relation, std::size_t number) {
    Invariant invariant = hypotheses_[number];
    const auto tallies = tallies_->of(number);
    for (const Tally& tally : tallies) {
      invariant.positive_examples += tally.held;
      invariant.negative_examples += tally.failed;
    }
    if (invariant.positive_examples == 0 && invariant.negative_examples == 0) return;
    invariant.text = relation.describe(world_.values, invariant);
    const Separated separated = separate(world_, tallies);
    if (separated.positive < options_.least_positive) {
      const bool few = invariant.positive_examples < options_.least_positive;
      reject(std::move(invariant), few ? "only one positive example" : "Precondition not found");
      return;
    }
    auto condition = search(relation, separated.examples, tallies);
    if (!condition) {
      reject(std::move(invariant), "Precondition not found");
      return;
    }
    sort_condition(world_.values, *condition);
    invariant.weak = invariant.weak && supports_[number].cases < relation.least_support();
    invariant.precondition = {{world_.name(relation.group()), std::move(*condition)}};
    result_.invariants.push_back(std::move(invariant));
  }

  void reject(Invariant invariant, const char* reason) {
    result_.rejected.push_back({reason, std::move(invariant), {}});
  }

  std::optional<Condition> search(const Relation& relation, const Examples& examples,
                                  std::span<const Tally> tallies) {
    SearchRules rules;
    for (const std::string_view part : relation.skip()) rules.skip.push_back(world_.name(part));
    auto condition = find_condition(world_.values, world_.situations, examples, rules);
    if (!condition) return condition;
    stages_.restrict(world_, *condition, examples.positive);
    // What was learned must hold of what it was learned from.
    const auto covered = [&](const Example& example) {
      return holds(world_.values, world_.situations, *condition, example);
    };
    for (const Tally& tally : tallies) {
      if (tally.failed > 0 && covered(tally.example)) return std::nullopt;
    }
    if (std::ranges::none_of(examples.positive, covered, &CountedExample::example)) {
      return std::nullopt;
    }
    return condition;
  }

  World world_;
  std::span<const TraceInput> traces_;
  InferOptions options_;
  std::vector<Invariant> hypotheses_;
  std::vector<Range> ranges_;
  std::unique_ptr<ExampleTallies> tallies_;
  std::vector<Support> supports_;  // of the hypotheses
  Stages stages_;
  Inference result_;
};

}  // namespace

Inference infer(Values& values, std::span<const TraceInput> traces, const Signatures* signatures,
                const InferOptions& options) {
  return Inferring(values, traces, signatures, options).run();
}

}  // namespace ttrace::invariant
