// SPDX-License-Identifier: Apache-2.0
// See infer.hpp: relations propose, preconditions are searched, stages restrict.
#include "invariant/compat/infer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr std::uint64_t kLeastPositive = 2;

void add(Tolerated& to, const Tolerated& from) {
  for (const auto part :
       {&Tolerated::incomplete_calls, &Tolerated::unmatched_ends, &Tolerated::repeated_records,
        &Tolerated::dropped_rows, &Tolerated::unknown_arguments, &Tolerated::exceptions,
        &Tolerated::other}) {
    to.*part += from.*part;
  }
}

class Engine {
 public:
  Engine(Values& values, const Signatures& signatures, std::span<Records> traces,
         const InferOptions& options)
      : shared_{values, signatures, {}}, options_(options) {
    for (Records& records : traces) {
      traces_.push_back(std::make_unique<Trace>(shared_, records));
      contexts_.push_back(std::make_unique<Context>(*traces_.back()));
      contexts_.back()->lone = traces.size() == 1;
      for (const Value stage : traces_.back()->stages) {
        if (!contains(stages_, stage)) stages_.push_back(stage);
      }
    }
  }

  Inference run() {
    std::uint64_t done = 0;
    for (const Relation& relation : relations()) {
      const bool wanted =
          options_.relations.empty() ||
          std::ranges::find(options_.relations, relation.name) != options_.relations.end();
      if (wanted) run(relation);
      if (options_.advance) options_.advance(++done, relations().size());
    }
    for (const auto& trace : traces_) add(out_.tolerated, trace->tolerated);
    return std::move(out_);
  }

 private:
  void run(const Relation& relation) {
    for (const auto& context : contexts_) context->gatherer.skip(relation.skip);
    if (contexts_.size() == 1) {  // nothing to merge: examples need not be kept
      relation.infer(*contexts_[0], [&](Hypothesis&& hypothesis) {
        if (enough(relation, hypothesis)) finish(relation, hypothesis);
      });
      return;
    }
    Merged merged(shared_.values);
    for (std::uint32_t i = 0; i < contexts_.size(); ++i) {
      relation.infer(*contexts_[i], [&](Hypothesis&& hypothesis) {
        hypothesis.traces = {i};
        merged.add(std::move(hypothesis));
      });
    }
    for (Hypothesis& hypothesis : merged.all) {
      if (!enough(relation, hypothesis)) continue;
      collect_elsewhere(relation, hypothesis);
      finish(relation, hypothesis);
    }
  }

  // Examples of traces that did not propose it.
  void collect_elsewhere(const Relation& relation, Hypothesis& hypothesis) {
    for (std::uint32_t i = 0; i < contexts_.size(); ++i) {
      if (std::ranges::find(hypothesis.traces, i) != hypothesis.traces.end()) continue;
      Hypothesis other;
      other.params = hypothesis.params;
      other.stages = hypothesis.stages;
      relation.collect(*contexts_[i], other);
      append(shared_.values, hypothesis, other);
    }
  }

  bool enough(const Relation& relation, const Hypothesis& hypothesis) {
    if (hypothesis.positive >= kLeastPositive) return true;
    reject(relation, hypothesis, "only one positive example");
    return false;
  }

  void finish(const Relation& relation, Hypothesis& hypothesis) {
    std::optional<Condition> condition = std::move(hypothesis.condition);
    if (!condition) {
      SearchRules rules{{}, true};
      for (const std::string_view part : relation.skip) {
        rules.skip.push_back(shared_.values.name(part));
      }
      condition = find_condition(shared_.values, shared_.situations, hypothesis.examples, rules);
    }
    if (!condition) return reject(relation, hypothesis, "Precondition not found");
    restrict_stages(hypothesis, *condition);
    Invariant invariant = invariant_of(relation, hypothesis);
    invariant.precondition.push_back({shared_.values.name(relation.group), std::move(*condition)});
    out_.invariants.push_back(std::move(invariant));
  }

  Invariant invariant_of(const Relation& relation, const Hypothesis& hypothesis) {
    Invariant out;
    out.text = relation.text(shared_.values, hypothesis.params);
    out.relation = shared_.values.name(relation.name);
    out.params = hypothesis.params;
    out.positive_examples = hypothesis.positive;
    out.negative_examples = hypothesis.negative;
    // The file names the function beside its arguments.
    for (Param& param : out.params) {
      if (!param.arguments.present()) continue;
      const Member members[] = {{shared_.values.name("args"), param.arguments},
                                {shared_.values.name("func_name"),
                                 shared_.values.string(shared_.values.text(param.api))}};
      param.arguments = shared_.values.object(members);
    }
    return out;
  }

  void reject(const Relation& relation, const Hypothesis& hypothesis, std::string_view reason) {
    if (!options_.keep_rejected) return;
    out_.rejected.push_back({std::string(reason), invariant_of(relation, hypothesis), {}});
  }

  [[nodiscard]] bool contains(const std::vector<Value>& stages, Value stage) const {
    return std::ranges::any_of(stages,
                               [&](Value known) { return shared_.values.equal(known, stage); });
  }

  [[nodiscard]] Clause stage_clause(const std::vector<Value>& stages) {
    Clause out{ClauseType::constant, shared_.values.name("meta_vars.stage"), {}, 0, {}};
    out.dtype = shared_.values.name("str");
    out.values = stages;
    return out;
  }

  [[nodiscard]] bool same(const Clause& a, const Clause& b) const {
    return a.type == b.type && a.property == b.property && a.dtype == b.dtype &&
           a.path.present() == b.path.present() && a.values.size() == b.values.size() &&
           std::ranges::all_of(a.values, [&](Value value) { return contains(b.values, value); });
  }

  // A hypothesis that survived in some stages only is one about these.
  void restrict_stages(const Hypothesis& hypothesis, Condition& condition) {
    if (hypothesis.stages.empty()) return;
    std::vector<Value> others;
    for (const Value stage : stages_) {
      if (!contains(hypothesis.stages, stage)) others.push_back(stage);
    }
    if (others.empty()) return;
    if (condition.inverted) {
      condition.any.push_back({stage_clause(others)});
      return;
    }
    const Clause here = stage_clause(hypothesis.stages);
    for (Conjunction& conjunction : condition.any) {
      const auto equal = [&](const Clause& clause) { return same(clause, here); };
      if (std::ranges::none_of(conjunction, equal)) conjunction.push_back(here);
    }
  }

  Shared shared_;
  const InferOptions& options_;
  std::vector<std::unique_ptr<Trace>> traces_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<Value> stages_;
  Inference out_;
};

}  // namespace

Inference infer(Values& values, const Signatures& signatures, std::span<Records> traces,
                const InferOptions& options) {
  return Engine(values, signatures, traces, options).run();
}

CheckResult check(Values& values, const Signatures& signatures, Records& records,
                  std::span<const Invariant> invariants, const Advance& advance) {
  Shared shared{values, signatures, {}};
  Trace trace(shared, records);
  Context context(trace);
  CheckResult out;
  for (const Invariant& invariant : invariants) {
    Outcome outcome{&invariant, Verdict::not_triggered, {}};
    const Relation* relation = find_relation(values.text(invariant.relation));
    if (relation == nullptr) {
      ++out.unknown;
    } else {
      relation->check(context, invariant, outcome);
    }
    std::ranges::stable_sort(outcome.violations, {}, &Violation::time);
    out.outcomes.push_back(std::move(outcome));
    if (advance) advance(out.outcomes.size(), invariants.size());
  }
  out.tolerated = trace.tolerated;
  return out;
}

}  // namespace ttrace::invariant::compat
