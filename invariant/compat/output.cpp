// SPDX-License-Identifier: Apache-2.0
// "A function returns tensors of which this attribute is that": ConsistentOutputRelation.
#include "invariant/compat/output.hpp"

#include <algorithm>
#include <unordered_map>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/tensors.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr std::string_view kMissing = "NOT SERIALIZABLE: <NA>";

struct Occurrences {
  Value value;
  std::vector<CountedExample> examples;
  std::uint64_t total = 0;

  void add(const Example& example) {
    ++total;
    if (!examples.empty() && examples.back().example.first == example.first) {
      ++examples.back().count;
    } else {
      examples.push_back({example, 1});
    }
  }
};

// The values of one attribute, in the order in which they were first met.
class AttributeValues {
 public:
  explicit AttributeValues(Name name) : name_(name) {}

  [[nodiscard]] Name name() const { return name_; }
  [[nodiscard]] const std::vector<Occurrences>& all() const { return all_; }
  [[nodiscard]] std::uint64_t total() const { return total_; }
  // The tensor in which it was last met, from 1.
  std::uint64_t last_tensor = 0;

  void add(const Values& values, Value value, const Example& example) {
    ++total_;
    if (last_ < all_.size() && values.equal(all_[last_].value, value)) {
      return all_[last_].add(example);
    }
    const std::uint64_t hash = values.hash(value);
    const auto [begin, end] = places_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      if (!values.equal(all_[entry->second].value, value)) continue;
      last_ = entry->second;
      return all_[last_].add(example);
    }
    last_ = all_.size();
    places_.emplace(hash, last_);
    all_.push_back({value, {}, 0});
    all_.back().add(example);
  }

 private:
  Name name_;
  std::vector<Occurrences> all_;
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
  std::size_t last_ = 0;
  std::uint64_t total_ = 0;
};

// What one function returns. TrainCheck gives up on calls that raise; here they do not count.
class Outputs {
 public:
  explicit Outputs(Context& context)
      : context_(context), missing_(context.trace.values().string(kMissing)) {}

  // False when it is no function of tensors: a call returned none.
  bool scan(const Function& function) {
    bool raised = false;
    for (const CallId id : function.calls) {
      const Call& call = context_.view.calls[id];
      if (!call.returned()) {
        raised = true;
        continue;
      }
      const auto tensors = output_tensors(context_.trace, context_.trace.at(call.post));
      if (tensors.empty()) return false;
      const Example example = context_.view.example(call.pre);
      for (const Value tensor : tensors) add(tensor, example);
    }
    if (raised && tensors_ > 0) ++context_.trace.tolerated.exceptions;
    return tensors_ > 0;
  }

  [[nodiscard]] const std::vector<AttributeValues>& attributes() const { return attributes_; }

 private:
  void add(Value tensor, const Example& example) {
    ++tensors_;
    const Values& values = context_.trace.values();
    std::size_t guess = 0;
    for (const Member& member : values.members(tensor)) {
      if (!is_output_attribute(context_.trace, member.name)) continue;
      if (guess >= attributes_.size() || attributes_[guess].name() != member.name) {
        const auto found = std::ranges::find(attributes_, member.name, &AttributeValues::name);
        guess = static_cast<std::size_t>(found - attributes_.begin());
        if (found == attributes_.end()) attributes_.emplace_back(member.name);
      }
      attributes_[guess].last_tensor = tensors_;
      attributes_[guess++].add(values, member.value, example);
    }
    for (AttributeValues& attribute : attributes_) {
      if (attribute.last_tensor != tensors_) attribute.add(values, missing_, example);
    }
  }

  Context& context_;
  Value missing_;
  std::vector<AttributeValues> attributes_;
  std::uint64_t tensors_ = 0;
};

void gather(Context& context, const AttributeValues& attribute, Value stated, Hypothesis& out) {
  for (const Occurrences& entry : attribute.all()) {
    const bool holds = context.trace.values().equal(entry.value, stated);
    for (const CountedExample& counted : entry.examples) {
      context.gatherer.add(counted.example, holds, counted.count);
    }
  }
  context.gatherer.finish(out);
}

}  // namespace

void infer_output(Context& context, const Sink& sink) {
  const Name tensor = context.trace.values().name("torch.Tensor");
  for (const Function& function : context.view.functions) {
    if (context.trace.skipped(function.name)) continue;
    Outputs outputs(context);
    if (!outputs.scan(function)) continue;
    for (const AttributeValues& attribute : outputs.attributes()) {
      for (const Occurrences& entry : attribute.all()) {
        Hypothesis out;
        out.params = {api_param(function.name), variable_param(tensor, attribute.name())};
        out.params[1].constant = entry.value;
        if (context.lone && entry.total < 2) {  // nobody will ask for the examples
          out.positive = entry.total;
          out.negative = attribute.total() - entry.total;
        } else {
          gather(context, attribute, entry.value, out);
        }
        sink(std::move(out));
      }
    }
  }
}

// Here a tensor without the attribute never counts as one that has the value "missing".
void collect_output(Context& context, Hypothesis& hypothesis) {
  const Function* function = context.view.find(hypothesis.params[0].api);
  if (function == nullptr || !Outputs(context).scan(*function)) return;
  const Values& values = context.trace.values();
  const Param& stated = hypothesis.params[1];
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned()) continue;
    for (const Value tensor : output_tensors(context.trace, context.trace.at(call.post))) {
      context.gatherer.add(context.view.example(call.pre),
                           values.equal(values.member(tensor, stated.attribute), stated.constant));
    }
  }
  context.gatherer.finish(hypothesis);
}

void check_output(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.size() != 2) return;
  const Function* function = context.view.find(invariant.params[0].api);
  if (function == nullptr) return;
  const Values& values = context.trace.values();
  const Param& stated = invariant.params[1];
  Applies applies(context, invariant);
  for (const CallId id : function->calls) {
    const Call& call = context.view.calls[id];
    if (!call.returned() || !applies.at(call.pre)) continue;
    trigger(outcome);
    const auto tensors = output_tensors(context.trace, context.trace.at(call.post));
    const bool holds =
        !tensors.empty() && is_output_attribute(context.trace, stated.attribute) &&
        std::ranges::all_of(tensors, [&](Value tensor) {
          return values.equal(values.member(tensor, stated.attribute), stated.constant);
        });
    if (!holds) violate(context, outcome, {call.pre, call.post});
  }
}

std::string output_text(const Values& values, const std::vector<Param>& params) {
  return short_name(values, params[0].api) + "() consistently returns tensors with " +
         std::string(values.text(params[1].attribute)) + "=" +
         python_text(values, params[1].constant);
}

}  // namespace ttrace::invariant::compat
