// SPDX-License-Identifier: Apache-2.0
#include "invariant/change_pattern.hpp"

#include <optional>

#include "invariant/arguments.hpp"

namespace ttrace::invariant {
namespace {

bool is_zero(Value value) {
  return value.kind == Kind::integer ? value.integer == 0
         : value.kind == Kind::real  ? value.real == 0
                                     : value.kind == Kind::boolean && !value.boolean;
}

double number_of(Value value) {
  switch (value.kind) {
    case Kind::boolean:
      return value.boolean ? 1 : 0;
    case Kind::integer:
      return static_cast<double>(value.integer);
    default:
      return value.real;
  }
}

// nullopt: no word.
std::optional<bool> admits_word(std::string_view word, Value value) {
  const bool none = value.kind == Kind::none;
  const double number = value.number() ? number_of(value) : 0;
  if (word == "anything") return true;
  if (word == "non_none") return !none;
  if (word == "non_zero") return !none && !(value.number() && is_zero(value));
  if (word == "above_zero") return value.number() && number > 0;
  if (word == "below_zero") return value.number() && number < 0;
  if (word == "non_negative") return none || (value.number() && number >= 0);
  if (word == "non_positive") return none || (value.number() && number <= 0);
  return std::nullopt;
}

}  // namespace

Value pattern_of(Values& values, Value value) {
  switch (value.kind) {
    case Kind::none:
    case Kind::boolean:
      return value;
    case Kind::integer:
    case Kind::real:
      return is_zero(value) ? value : values.string("non_zero");
    case Kind::string:
      return looks_configured(values, value) ? value : values.string("non_none");
    case Kind::list:
    case Kind::object:
    case Kind::absent:
      break;
  }
  return values.string("non_none");
}

bool admits(const Values& values, Value pattern, Value value) {
  if (!pattern.present()) return true;
  if (pattern.kind == Kind::string) {
    if (const auto result = admits_word(values.text(pattern), value)) return *result;
  }
  return values.equal(pattern, value);
}

}  // namespace ttrace::invariant
