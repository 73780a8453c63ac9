// SPDX-License-Identifier: Apache-2.0
// See tensors.hpp.
#include "invariant/compat/tensors.hpp"

#include <algorithm>

namespace ttrace::invariant::compat {
namespace {

void add_tensor(Trace& trace, Value typed, std::vector<Value>& out) {
  if (!trace.is_tensor(typed)) return;
  const Value content = trace.values().members(typed)[0].value;
  if (content.kind == Kind::object) out.push_back(content);
}

void add_members(Trace& trace, Value object, std::vector<Value>& out) {
  if (object.kind != Kind::object) return;
  for (const Member& member : trace.values().members(object)) add_tensor(trace, member.value, out);
}

}  // namespace

std::vector<Value> input_tensors(Trace& trace, const Record& pre) {
  std::vector<Value> out;
  add_members(trace, pre.args, out);
  add_members(trace, pre.kwargs, out);
  return out;
}

std::vector<Value> output_tensors(Trace& trace, const Record& post) {
  std::vector<Value> out;
  if (post.returns.kind == Kind::list) {
    for (const Value element : trace.values().elements(post.returns)) {
      add_tensor(trace, element, out);
    }
  } else {
    add_tensor(trace, post.returns, out);
  }
  return out;
}

bool is_output_attribute(const Trace& trace, Name attribute) {
  return attribute != trace.words.data_id;
}

bool takes_tensor(Trace& trace, const Record& pre) {
  return pre.args.kind == Kind::object &&
         std::ranges::any_of(trace.values().members(pre.args),
                             [&](const Member& member) { return trace.is_tensor(member.value); });
}

std::vector<Found> places_in(const Trace& trace, const std::vector<Value>& tensors, bool output) {
  const Values& values = trace.values();
  std::vector<Found> out;
  const auto add = [&](const Place& place, Value value) {
    if (value.kind != Kind::list && value.kind != Kind::object) out.push_back({place, value});
  };
  for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
    for (const Member& member : values.members(tensors[tensor])) {
      if (output && !is_output_attribute(trace, member.name)) continue;
      if (member.value.kind != Kind::list) {
        add({tensor, member.name, -1}, member.value);
        continue;
      }
      const auto elements = values.elements(member.value);
      for (std::size_t i = 0; i < elements.size(); ++i) {
        add({tensor, member.name, static_cast<std::int32_t>(i)}, elements[i]);
      }
    }
  }
  return out;
}

Value value_at(const Values& values, const std::vector<Value>& tensors, const Place& place) {
  if (place.tensor >= tensors.size()) return {};
  const Value value = values.member(tensors[place.tensor], place.attribute);
  if (place.element < 0) return value;
  if (value.kind != Kind::list) return {};
  const auto elements = values.elements(value);
  const auto element = static_cast<std::size_t>(place.element);
  return element < elements.size() ? elements[element] : Value{};
}

Param place_param(Values& values, Name function, const Place& place, bool input) {
  Param out;
  out.type = ParamType::input_output;
  out.api = function;
  out.name = values.name(input ? "input_tensors" : "output_tensors");
  out.value_type = values.name("torch.Tensor");
  out.index = integer(place.tensor);
  out.is_input = input;
  std::vector<Value> path{values.string(values.text(place.attribute))};
  if (place.element >= 0) path.push_back(integer(place.element));
  out.path = values.list(path);
  return out;
}

std::optional<Place> place_of(Values& values, const Param& param) {
  if (param.index.kind != Kind::integer || param.path.kind != Kind::list) return std::nullopt;
  const auto steps = values.elements(param.path);
  if (steps.empty() || steps.size() > 2 || steps[0].kind != Kind::string) return std::nullopt;
  if (param.index.integer < 0) return std::nullopt;
  Place out{static_cast<std::uint32_t>(param.index.integer), values.name(values.text(steps[0])),
            -1};
  if (steps.size() == 2) {
    if (steps[1].kind != Kind::integer) return std::nullopt;
    out.element = static_cast<std::int32_t>(steps[1].integer);
  }
  return out;
}

std::uint32_t PlaceTable::number_of(const Place& place) {
  const std::uint64_t key = (std::uint64_t{place.attribute} << 24 ^ place.tensor) << 8 ^
                            static_cast<std::uint32_t>(place.element);
  std::vector<std::uint32_t>& numbers = numbers_[key];
  for (const std::uint32_t number : numbers) {
    if (places_[number] == place) return number;
  }
  numbers.push_back(static_cast<std::uint32_t>(places_.size()));
  places_.push_back(place);
  return numbers.back();
}

}  // namespace ttrace::invariant::compat
