// SPDX-License-Identifier: Apache-2.0
// ConsistentInputOutput: an attribute of an input tensor equals that of an output tensor. Only the
// same attribute, or extent of a shape, is compared: that a flag happens to equal a number of
// dimensions, or a width a batch size, says nothing.
#include <map>
#include <set>
#include <unordered_map>

#include "invariant/arguments.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::size_t kTensors = 4;     // of a call, each side
constexpr std::size_t kDimensions = 6;  // of a shape

// A tensor's attribute, or an element of a list: (attribute, position).
struct Path {
  std::size_t tensor = 0;
  Name attribute = 0;
  std::int64_t position = -1;
  friend auto operator<=>(const Path&, const Path&) = default;
};

bool compared(std::string_view attribute) {
  return attribute == "dtype" || attribute == "requires_grad" || attribute == "is_cuda" ||
         attribute == "shape" || attribute == "ndim" || attribute == "device";
}

Value at(const Values& values, const std::vector<Value>& tensors, const Path& path) {
  if (path.tensor >= tensors.size()) return {};
  const Value value = values.member(tensors[path.tensor], path.attribute);
  if (path.position < 0) return value;
  if (value.kind != Kind::list) return {};
  const auto elements = values.elements(value);
  const auto position = static_cast<std::size_t>(path.position);
  return position < elements.size() ? elements[position] : Value{};
}

class InputOutputProposer : public Proposer {
 public:
  InputOutputProposer(World& world, Name relation)
      : world_(world), relation_(relation), shape_(world.name("shape")) {}

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised || skipped(call.function)) return;
    const auto& values = world_.values;
    const std::vector<Value> inputs = input_tensors(values, call);
    const std::vector<Value> outputs = output_tensors(values, call);
    if (inputs.empty() || outputs.empty()) return;
    auto& pairs = functions_[call.function];
    const auto left = paths(inputs);
    const auto right = paths(outputs);
    for (const Path& in : left) {
      for (const Path& out : right) {
        if (in.attribute != out.attribute || in.position != out.position) continue;
        if (values.equal(at(values, inputs, in), at(values, outputs, out))) pairs.insert({in, out});
      }
    }
  }

  std::vector<Invariant> proposals(std::size_t /*traces*/) override {
    std::vector<Invariant> result;
    for (const auto& [function, pairs] : functions_) {
      for (const auto& [in, out] : pairs) {
        Invariant invariant;
        invariant.relation = relation_;
        invariant.params = {param(function, in, true), Param{}, param(function, out, false)};
        invariant.params[1].api = function;
        result.push_back(std::move(invariant));
      }
    }
    return result;
  }

 private:
  bool skipped(Name function) {
    const auto [entry, added] = skipped_.try_emplace(function, false);
    if (added) {
      entry->second = ignored("ConsistentInputOutputRelation", world_.values.text(function));
    }
    return entry->second;
  }

  std::vector<Path> paths(const std::vector<Value>& tensors) {
    std::vector<Path> result;
    for (std::size_t i = 0; i < tensors.size() && i < kTensors; ++i) {
      for (const Member& member : world_.values.members(tensors[i])) {
        const auto [entry, added] = compared_.try_emplace(member.name, false);
        if (added) entry->second = compared(world_.values.text(member.name));
        if (!entry->second) continue;
        if (member.value.kind != Kind::list) {
          result.push_back({i, member.name, -1});
        } else if (member.name == shape_) {
          const std::size_t count = world_.values.elements(member.value).size();
          for (std::size_t k = 0; k < count && k < kDimensions; ++k) {
            result.push_back({i, member.name, static_cast<std::int64_t>(k)});
          }
        }
      }
    }
    return result;
  }

  Param param(Name function, const Path& path, bool input) {
    Param result;
    result.type = ParamType::input_output;
    result.name = world_.name(input ? "input_tensors" : "output_tensors");
    result.index = integer(static_cast<std::int64_t>(path.tensor));
    result.value_type = world_.name("torch.Tensor");
    std::vector<Value> steps{{Kind::string, {.ref = path.attribute}}};
    if (path.position >= 0) steps.push_back(integer(path.position));
    result.path = world_.values.list(steps);
    result.api = function;
    result.is_input = input;
    return result;
  }

  World& world_;
  Name relation_;
  Name shape_;
  std::map<Name, std::set<std::pair<Path, Path>>> functions_;
  std::unordered_map<Name, bool> skipped_, compared_;
};

// False when it is of another form: an invariant from elsewhere.
bool read_path(const Values& values, const Param& param, Path& path) {
  if (param.index.kind != Kind::integer || param.path.kind != Kind::list) return false;
  path.tensor = static_cast<std::size_t>(param.index.integer);
  const auto steps = values.elements(param.path);
  if (steps.empty() || steps.size() > 2 || steps[0].kind != Kind::string) return false;
  path.attribute = steps[0].ref;
  if (steps.size() == 1) return true;
  if (steps[1].kind != Kind::integer) return false;
  path.position = steps[1].integer;
  return true;
}

class InputOutputEvaluator : public Listener {
 public:
  InputOutputEvaluator(World& world, std::span<const Invariant* const> hypotheses, Sink& sink)
      : world_(world), sink_(sink) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      const auto& params = hypotheses[i]->params;
      Pair pair{i, {}, {}};
      if (params.size() != 3 || !read_path(world.values, params[0], pair.in) ||
          !read_path(world.values, params[2], pair.out)) {
        continue;
      }
      functions_[params[1].api].push_back(pair);
    }
  }

  void leave(const Call& call, std::size_t /*index*/) override {
    if (call.raised) return;
    const auto entry = functions_.find(call.function);
    if (entry == functions_.end()) return;
    const auto& values = world_.values;
    const std::vector<Value> inputs = input_tensors(values, call);
    const std::vector<Value> outputs = output_tensors(values, call);
    const Example example{call.situation, 0, false};
    for (const Pair& pair : entry->second) {
      const Value in = at(values, inputs, pair.in);
      const Value out = at(values, outputs, pair.out);
      if (!in.present() || !out.present()) continue;
      if (!sink_.example(pair.hypothesis, example, values.equal(in, out))) continue;
      Evidence evidence;
      evidence.place = call.place;
      evidence.found =
          "the input has " + printed(values, in) + ", the output " + printed(values, out);
      sink_.report(pair.hypothesis, std::move(evidence));
    }
  }

 private:
  struct Pair {
    std::size_t hypothesis;
    Path in, out;
  };

  World& world_;
  Sink& sink_;
  std::unordered_map<Name, std::vector<Pair>> functions_;
};

std::string path_text(const Values& values, const Param& param) {
  std::string text = param.is_input ? "input[" : "output[";
  text += printed(values, param.index) + "]";
  if (param.path.kind != Kind::list) return text;
  for (const Value step : values.elements(param.path)) {
    text += step.kind == Kind::integer ? "[" + printed(values, step) + "]"
                                       : "." + printed(values, step);
  }
  return text;
}

class ConsistentInputOutput : public Relation {
 public:
  [[nodiscard]] std::string_view name() const override { return "ConsistentInputOutputRelation"; }
  [[nodiscard]] std::string_view group() const override { return "pre_event"; }

  [[nodiscard]] std::string describe(const Values& values,
                                     const Invariant& invariant) const override {
    return short_name(values.text(invariant.params[1].api)) +
           "(): " + path_text(values, invariant.params[0]) + " consistent with " +
           path_text(values, invariant.params[2]);
  }

  [[nodiscard]] std::string advice(const Values& values,
                                   const Invariant& invariant) const override {
    return "look at what " + short_name(values.text(invariant.params[1].api)) +
           " is given and at the settings in force there";
  }

  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return std::make_unique<InputOutputProposer>(world, world.name(name()));
  }

  [[nodiscard]] std::unique_ptr<Listener> evaluator(World& world,
                                                    std::span<const Invariant* const> hypotheses,
                                                    Sink& sink) const override {
    return std::make_unique<InputOutputEvaluator>(world, hypotheses, sink);
  }
};

}  // namespace

std::unique_ptr<Relation> consistent_input_output_relation() {
  return std::make_unique<ConsistentInputOutput>();
}

}  // namespace ttrace::invariant
