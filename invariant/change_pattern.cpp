// SPDX-License-Identifier: Apache-2.0
#include "invariant/change_pattern.hpp"

#include "invariant/arguments.hpp"

namespace ttrace::invariant {
namespace {

bool is_zero(Value value) { return value.number() && as_double(value) == 0; }

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
  if (!pattern.present() || values.equal(pattern, value)) return true;
  if (pattern.kind != Kind::string) return false;
  const std::string_view word = values.text(pattern);
  const bool none = value.kind == Kind::none;
  if (word == "anything") return true;
  if (word == "non_none") return !none;
  if (none) return word == "non_positive" || word == "non_negative";
  if (word == "non_zero") return !is_zero(value);
  if (!value.number()) return false;
  if (word == "above_zero") return as_double(value) > 0;
  if (word == "below_zero") return as_double(value) < 0;
  if (word == "non_positive") return as_double(value) <= 0;
  if (word == "non_negative") return as_double(value) >= 0;
  return false;
}

}  // namespace ttrace::invariant
