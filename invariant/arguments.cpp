// SPDX-License-Identifier: Apache-2.0
#include "invariant/arguments.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace ttrace::invariant {
namespace {

bool names_nothing(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.passing != Parameter::Passing::rest &&
        parameter.passing != Parameter::Passing::keywords) {
      return false;
    }
  }
  return true;
}

std::size_t position_of(std::string_view text) {
  std::size_t position = SIZE_MAX;
  std::from_chars(text.data(), text.data() + text.size(), position);
  return position;
}

void set(std::vector<Member>& members, Name name, Value value) {
  for (Member& member : members) {
    if (member.name == name) {
      member.value = value;
      return;
    }
  }
  members.push_back({name, value});
}

std::vector<Member> bind(World& world, const std::vector<Parameter>* parameters, Value args,
                         Value kwargs) {
  std::vector<Member> bound;
  const bool known = parameters != nullptr && !names_nothing(*parameters);
  if (args.kind == Kind::object) {
    for (const Member& member : world.values.members(args)) {
      if (!known) {
        bound.push_back(member);
        continue;
      }
      const std::size_t position = position_of(world.values.text(member.name));
      if (position >= parameters->size()) continue;  // more than the function takes, or *args
      bound.push_back({(*parameters)[position].name, member.value});
    }
  }
  if (kwargs.kind == Kind::object) {
    for (const Member& member : world.values.members(kwargs)) {
      set(bound, member.name, member.value);
    }
  }
  return bound;
}

void add_defaults(std::vector<Member>& bound, const std::vector<Parameter>* parameters) {
  if (parameters == nullptr) return;
  for (const Parameter& parameter : *parameters) {
    if (!parameter.fallback.present()) continue;
    bool given = false;
    for (const Member& member : bound) given = given || member.name == parameter.name;
    if (!given) bound.push_back({parameter.name, parameter.fallback});
  }
}

void add_tensors(const Values& values, Value value, std::vector<Value>& tensors) {
  const Typed entry = typed(values, value);
  if (entry.payload.kind == Kind::object && is_tensor_type(values.text(entry.type))) {
    tensors.push_back(entry.payload);
  }
}

}  // namespace

Typed typed(const Values& values, Value value) {
  if (value.kind != Kind::object) return {};
  const auto members = values.members(value);
  if (members.size() != 1) return {};
  return {members[0].name, members[0].value};
}

Value bound_arguments(World& world, Name function, Value args, Value kwargs) {
  const auto* parameters = world.signatures == nullptr ? nullptr : world.signatures->find(function);
  return world.values.object(bind(world, parameters, args, kwargs));
}

Value arguments_with_defaults(World& world, Name function, Value args, Value kwargs) {
  const auto* parameters = world.signatures == nullptr ? nullptr : world.signatures->find(function);
  std::vector<Member> bound = bind(world, parameters, args, kwargs);
  add_defaults(bound, parameters);
  return world.values.object(bound);
}

Value manager_arguments(World& world, Name init, Value args, Value kwargs) {
  const auto* parameters =
      world.signatures == nullptr ? nullptr : world.signatures->find_manager(init);
  std::vector<Member> bound = bind(world, parameters, args, kwargs);
  add_defaults(bound, parameters);
  std::vector<Member> plain;
  for (const Member& member : bound) {
    const Typed entry = typed(world.values, member.value);
    const Value payload = entry.payload.present() ? entry.payload : member.value;
    if (looks_configured(world.values, payload)) plain.push_back({member.name, payload});
  }
  return world.values.object(plain);
}

Value stated_arguments(const Values& values, const Param& child) {
  if (child.arguments.kind != Kind::object) return {};
  Value arguments;
  bool named = false;
  for (const Member& member : values.members(child.arguments)) {
    const std::string_view name = values.text(member.name);
    if (name == "args") arguments = member.value;
    named = named || name == "func_name";
  }
  return named ? arguments : child.arguments;
}

Value state_arguments(World& world, Name function, Value arguments) {
  const Member members[] = {{world.name("args"), arguments},
                            {world.name("func_name"), {Kind::string, {.ref = function}}}};
  return world.values.object(members);
}

bool is_tensor_type(std::string_view type) {
  if (type.find("Parameter") != std::string_view::npos) return true;
  return type.starts_with("torch.") && type.find("Tensor") != std::string_view::npos;
}

std::vector<Value> input_tensors(const Values& values, const Call& call) {
  std::vector<Value> tensors;
  for (const Value given : {call.args, call.kwargs}) {
    if (given.kind != Kind::object) continue;
    for (const Member& member : values.members(given)) add_tensors(values, member.value, tensors);
  }
  return tensors;
}

std::vector<Value> output_tensors(const Values& values, const Call& call) {
  std::vector<Value> tensors;
  if (call.returns.kind == Kind::list) {
    for (const Value element : values.elements(call.returns)) add_tensors(values, element, tensors);
  } else {
    add_tensors(values, call.returns, tensors);
  }
  return tensors;
}

bool looks_configured(const Values& values, Value value) {
  // Ports, process numbers and seeds by time are larger, and round only by chance.
  constexpr std::int64_t kSmall = 1024;
  constexpr std::int64_t kRound = 128;
  constexpr std::int64_t kAddress = 1 << 24;
  switch (value.kind) {
    case Kind::none:
    case Kind::boolean:
      return true;
    case Kind::integer:
      if (value.integer > -kSmall && value.integer < kSmall) return true;
      return value.integer % kRound == 0 && std::abs(value.integer) < kAddress;
    case Kind::string: {
      const std::string_view text = values.text(value);
      return text.size() <= 48 && text.find('/') == std::string_view::npos &&
             text.find("0x") == std::string_view::npos;
    }
    case Kind::real: {
      if (!std::isfinite(value.real)) return false;
      char digits[40];
      std::snprintf(digits, sizeof digits, "%.6g", value.real);
      return std::strtod(digits, nullptr) == value.real;
    }
    case Kind::absent:
    case Kind::list:
    case Kind::object:
      return false;
  }
  return false;
}

bool is_enum_like(const Values& values, Value value) {
  if (value.kind != Kind::none && value.kind != Kind::boolean && value.kind != Kind::string) {
    return false;
  }
  return looks_configured(values, value);
}

}  // namespace ttrace::invariant
