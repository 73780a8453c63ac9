// SPDX-License-Identifier: Apache-2.0
// See text.hpp.
#include "invariant/compat/text.hpp"

#include "invariant/json_text.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant::compat {
namespace {

std::string quoted(const Values& values, Value value) {
  if (value.kind != Kind::string) return python_text(values, value);
  return "'" + std::string(values.text(value)) + "'";
}

}  // namespace

std::string short_name(const Values& values, Name function) {
  return invariant::short_name(values.text(function));
}

std::string variable_text(const Values& values, const Param& param) {
  constexpr std::string_view kMark = "_TRAINCHECK_";
  std::string_view attribute = values.text(param.attribute);
  if (attribute.starts_with(kMark)) attribute.remove_prefix(kMark.size());
  const std::string_view type = values.text(param.variable_type);
  return std::string(type.substr(type.rfind('.') + 1)) + "." + std::string(attribute);
}

std::string python_text(const Values& values, Value value) {
  std::string out;
  switch (value.kind) {
    case Kind::absent:
      return "<NA>";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer);
    case Kind::real:
      append_real(out, value.real);
      return out;
    case Kind::string: {
      constexpr std::string_view kMark = "NOT SERIALIZABLE: ";
      std::string_view text = values.text(value);
      if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
      return std::string(text);
    }
    case Kind::list: {
      const auto elements = values.elements(value);
      for (const Value element : elements) {
        out += (out.empty() ? "" : ", ") + quoted(values, element);
      }
      return "(" + out + (elements.size() == 1 ? ",)" : ")");
    }
    case Kind::object:
      return to_json(values, value);
  }
  return out;
}

std::string spoken(const Values& values, Value value) {
  std::string out = python_text(values, value);
  return out == "non_zero" ? "non-zero" : out;
}

std::string place_text(const Values& values, const Param& param) {
  if (param.index.kind != Kind::integer) return std::string(values.text(param.name));
  std::string out = param.is_input ? "input[" : "output[";
  out += std::to_string(param.index.integer) + "]";
  if (param.path.kind != Kind::list) return out;
  for (const Value step : values.elements(param.path)) out += "." + python_text(values, step);
  return out;
}

}  // namespace ttrace::invariant::compat
