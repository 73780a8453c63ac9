// SPDX-License-Identifier: Apache-2.0
// See text.hpp.
#include "invariant/compat/text.hpp"

#include <vector>

#include "invariant/json_text.hpp"

namespace ttrace::invariant::compat {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool upper(std::string_view part) { return !part.empty() && part[0] >= 'A' && part[0] <= 'Z'; }

std::string joined(const std::vector<std::string_view>& parts, std::size_t from) {
  std::string out;
  for (std::size_t i = from; i < parts.size(); ++i) {
    out += (i == from ? "" : ".") + std::string(parts[i]);
  }
  return out;
}

std::string quoted(const Values& values, Value value) {
  if (value.kind != Kind::string) return python_text(values, value);
  return "'" + std::string(values.text(value)) + "'";
}

}  // namespace

std::string short_name(const Values& values, Name function) {
  const std::vector<std::string_view> parts = split(values.text(function));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (upper(parts[i])) return joined(parts, i);
  }
  return joined(parts, parts.size() > 2 ? parts.size() - 2 : 0);
}

std::string variable_text(const Values& values, const Param& param) {
  constexpr std::string_view kMark = "_TRAINCHECK_";
  std::string_view attribute = values.text(param.attribute);
  if (attribute.starts_with(kMark)) attribute.remove_prefix(kMark.size());
  const std::vector<std::string_view> parts = split(values.text(param.variable_type));
  return std::string(parts.back()) + "." + std::string(attribute);
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
