// SPDX-License-Identifier: Apache-2.0
// "An attribute of an argument is that of the result": ConsistentInputOutputRelation.
#include "invariant/compat/input_output.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/tensors.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

using PlacePair = std::pair<std::uint32_t, std::uint32_t>;  // of the inputs, of the outputs

// Places by value: as a Python dict, whose keys are what was met first.
class ByValue {
 public:
  struct Group {
    Value value;
    std::vector<std::uint32_t> places;
  };

  ByValue(const Values& values, PlaceTable& table, const std::vector<Found>& found)
      : values_(values) {
    for (const Found& entry : found) {
      if (Group* group = find(entry.value)) {
        group->places.push_back(table.number_of(entry.place));
        continue;
      }
      if (entry.value.kind == Kind::real && !values.equal(entry.value, entry.value)) continue;
      numbers_.emplace(values.hash(entry.value), groups_.size());
      groups_.push_back({entry.value, {table.number_of(entry.place)}});
    }
  }

  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }
  [[nodiscard]] Group* find(Value value) {
    const auto [begin, end] = numbers_.equal_range(values_.hash(value));
    for (auto entry = begin; entry != end; ++entry) {
      if (values_.equal(groups_[entry->second].value, value)) return &groups_[entry->second];
    }
    return nullptr;
  }

 private:
  const Values& values_;
  std::vector<Group> groups_;
  std::unordered_multimap<std::uint64_t, std::size_t> numbers_;
};

struct Input {
  Example example;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
};

class Scan {
 public:
  Scan(Context& context, const Function& function) : context_(context), function_(function) {}

  // False when no call takes and none returns a tensor.
  bool read() {
    Trace& trace = context_.trace;
    bool takes = false;
    bool gives = false;
    bool raised = false;
    for (const CallId id : function_.calls) {
      const Call& call = context_.view.calls[id];
      const Record& pre = trace.at(call.pre);
      takes = takes || takes_tensor(trace, pre);
      if (!call.returned()) {
        raised = true;
        continue;
      }
      calls_.push_back({context_.view.example(call.pre), input_tensors(trace, pre),
                        output_tensors(trace, trace.at(call.post))});
      gives = gives || !calls_.back().outputs.empty();
    }
    if (raised && takes && gives) ++trace.tolerated.exceptions;
    return takes && gives;
  }

  void propose() {
    for (const Input& call : calls_) propose(call);
  }

  void finish(const Sink& sink) {
    find_values();
    Values& values = context_.trace.values();
    for (const auto& [input, output] : pairs_) {
      Hypothesis out;
      out.params = {place_param(values, function_.name, inputs_.places()[input], true),
                    api_param(function_.name),
                    place_param(values, function_.name, outputs_.places()[output], false)};
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        const Value a = found_inputs_[i * inputs_.places().size() + input];
        const Value b = found_outputs_[i * outputs_.places().size() + output];
        if (!a.present() || !b.present()) continue;
        context_.gatherer.add(calls_[i].example, values.equal(a, b));
      }
      context_.gatherer.finish(out);
      sink(std::move(out));
    }
  }

 private:
  void propose(const Input& call) {
    const Values& values = context_.trace.values();
    ByValue inputs(values, inputs_, places_in(context_.trace, call.inputs, false));
    ByValue outputs(values, outputs_, places_in(context_.trace, call.outputs, true));
    const bool by_output = outputs.groups().size() <= inputs.groups().size();
    ByValue& other = by_output ? inputs : outputs;
    for (const ByValue::Group& group : (by_output ? outputs : inputs).groups()) {
      const ByValue::Group* equal = other.find(group.value);
      if (equal == nullptr) continue;
      const ByValue::Group& in = by_output ? *equal : group;
      const ByValue::Group& out = by_output ? group : *equal;
      for (const std::uint32_t a : in.places) {
        for (const std::uint32_t b : out.places) {
          // True and False are everywhere; only the same place is worth comparing.
          const bool allowed =
              group.value.kind != Kind::boolean || inputs_.places()[a] == outputs_.places()[b];
          if (allowed && known_.insert({a, b}).second) pairs_.emplace_back(a, b);
        }
      }
    }
  }

  void find_values() {
    const Values& values = context_.trace.values();
    for (const Input& call : calls_) {
      for (const Place& place : inputs_.places()) {
        found_inputs_.push_back(value_at(values, call.inputs, place));
      }
      for (const Place& place : outputs_.places()) {
        found_outputs_.push_back(value_at(values, call.outputs, place));
      }
    }
  }

  Context& context_;
  const Function& function_;
  std::vector<Input> calls_;
  PlaceTable inputs_;
  PlaceTable outputs_;
  std::vector<PlacePair> pairs_;  // in the order in which they were proposed
  std::set<PlacePair> known_;
  std::vector<Value> found_inputs_;  // by call, then by place
  std::vector<Value> found_outputs_;
};

}  // namespace

void infer_input_output(Context& context, const Sink& sink) {
  for (const Function& function : context.view.functions) {
    if (context.trace.skipped(function.name)) continue;
    Scan scan(context, function);
    if (!scan.read()) continue;
    scan.propose();
    scan.finish(sink);
  }
}

void collect_input_output(Context& context, Hypothesis& hypothesis) {
  Trace& trace = context.trace;
  const Function* function = context.view.find(hypothesis.params[1].api);
  const auto from = place_of(trace.values(), hypothesis.params[0]);
  const auto to = place_of(trace.values(), hypothesis.params[2]);
  if (function == nullptr || !from || !to) return;
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned()) continue;
    const Value a = value_at(trace.values(), input_tensors(trace, trace.at(call.pre)), *from);
    const Value b = value_at(trace.values(), output_tensors(trace, trace.at(call.post)), *to);
    if (!a.present() || !b.present()) continue;
    context.gatherer.add(context.view.example(call.pre), trace.values().equal(a, b));
  }
  context.gatherer.finish(hypothesis);
}

void check_input_output(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.size() != 3) return;
  Trace& trace = context.trace;
  const Function* function = context.view.find(invariant.params[1].api);
  const auto from = place_of(trace.values(), invariant.params[0]);
  const auto to = place_of(trace.values(), invariant.params[2]);
  if (function == nullptr || !from || !to) return;
  Applies applies(context, invariant);
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned() || !applies.at(call.pre)) continue;
    const Value a = value_at(trace.values(), input_tensors(trace, trace.at(call.pre)), *from);
    const Value b = value_at(trace.values(), output_tensors(trace, trace.at(call.post)), *to);
    if (!a.present() || !b.present()) continue;
    trigger(outcome);
    if (!trace.values().equal(a, b)) violate(context, outcome, {call.pre, call.post});
  }
}

std::string input_output_text(const Values& values, const std::vector<Param>& params) {
  return short_name(values, params[1].api) + "(): " + place_text(values, params[0]) +
         " consistent with " + place_text(values, params[2]);
}

}  // namespace ttrace::invariant::compat
