// SPDX-License-Identifier: Apache-2.0
#include "invariant/relation.hpp"

#include <cctype>
#include <cstdio>

namespace ttrace::invariant {
namespace {

std::vector<std::unique_ptr<Relation>> make_relations() {
  std::vector<std::unique_ptr<Relation>> all;
  all.push_back(api_contain_relation());
  all.push_back(function_cover_relation());
  all.push_back(function_lead_relation());
  all.push_back(consistency_relation());
  all.push_back(var_periodic_change_relation());
  all.push_back(consistent_output_relation());
  all.push_back(consistent_input_output_relation());
  all.push_back(distinct_argument_relation());
  all.push_back(threshold_relation());
  return all;
}

std::string printed_real(double value) {
  char text[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

// A report has one line for a thing; tracebacks are arguments, too.
std::string on_one_line(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string line(text.substr(0, kLongest));
  for (char& character : line) {
    if (static_cast<unsigned char>(character) < ' ') character = ' ';
  }
  return text.size() > kLongest ? line + "..." : line;
}

// Parts of names of functions whose calls have no effect: how often and when a library asks
// depends on its version, not on the training.
constexpr std::string_view kQueries[] = {
    "is_available",        "is_initialized",    "is_compiling",   "is_exporting",
    "is_grad_enabled",     "get_default_dtype", "_is_compiled",   "_is_in_bad_fork",
    "torch.overrides",     "is_autocast",       "get_autocast",   "<lambda>",
    "current_accelerator", "is_scripting",      "is_tracing",     "torch._dynamo",
    "is_inference_mode",   "torch._ops.",       "_get_value",     "_reduction.get_enum",
    "torch._C.",           "_record_function",  "named_children", "Module.children",
    "named_parameters",    "named_modules",     "_named_members", "named_buffers",
};

struct Ignored {
  std::string_view relation;
  std::string_view part;
};
// A relation's own. A module's training mode is an order's business, so nothing of it is here.
constexpr Ignored kIgnored[] = {
    // Libraries fill and copy small tensors alike all the time.
    {"DistinctArgumentRelation", "torch._VariableFunctionsClass."},
};

}  // namespace

std::string Relation::cases(const Values& values, const Invariant& invariant) const {
  for (const Param& param : invariant.params) {
    if (param.type == ParamType::api)
      return "calls of " + short_name(values.text(param.api)) + "()";
  }
  return "cases";
}

const std::vector<std::unique_ptr<Relation>>& relations() {
  static const std::vector<std::unique_ptr<Relation>> all = make_relations();
  return all;
}

bool ignored(std::string_view relation, std::string_view function) {
  for (const std::string_view part : kQueries) {
    if (function.find(part) != std::string_view::npos) return true;
  }
  for (const Ignored& entry : kIgnored) {
    if (entry.relation == relation && function.find(entry.part) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// From the first component that begins with a capital letter, else the last two.
std::string short_name(std::string_view function) {
  std::size_t first = 0;
  std::size_t begin = 0;
  std::size_t last = std::string_view::npos;
  std::size_t before_last = 0;
  while (begin < function.size()) {
    const std::size_t dot = function.find('.', begin);
    if (std::isupper(static_cast<unsigned char>(function[begin])) != 0) {
      first = begin;
      return std::string(function.substr(first));
    }
    if (last != std::string_view::npos) before_last = last;
    last = begin;
    if (dot == std::string_view::npos) break;
    begin = dot + 1;
  }
  return std::string(function.substr(before_last));
}

std::string printed(const Values& values, Value value) {
  switch (value.kind) {
    case Kind::absent:
      return "<missing>";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer);
    case Kind::real:
      return printed_real(value.real);
    case Kind::string:
      return on_one_line(values.text(value));
    case Kind::list: {
      std::string text = "(";
      for (const Value element : values.elements(value)) {
        if (text.size() > 1) text += ", ";
        text += printed(values, element);
      }
      return text + ")";
    }
    case Kind::object:
      return "{...}";
  }
  return "";
}

}  // namespace ttrace::invariant
