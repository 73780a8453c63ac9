// SPDX-License-Identifier: Apache-2.0
// See contain.hpp: words for many values.
#include <algorithm>
#include <limits>

#include "invariant/compat/contain.hpp"

namespace ttrace::invariant::compat {
namespace {

double number(Value value) {
  switch (value.kind) {
    case Kind::boolean:
      return value.boolean ? 1 : 0;
    case Kind::integer:
      return static_cast<double>(value.integer);
    default:
      return value.real;
  }
}

std::string_view word_for(double low, double high, bool zero) {
  if (low > 0) return "above_zero";
  if (low >= 0) return "non_negative";
  if (high < 0) return "below_zero";
  if (high <= 0) return "non_positive";
  return zero ? "non_none" : "non_zero";
}

}  // namespace

std::optional<Value> generalise(Values& values, const std::vector<Value>& of) {
  const auto same = [&](Value value) { return values.equal(value, of[0]); };
  if (std::ranges::all_of(of, same)) return of[0];
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  bool any_number = false;
  bool any_none = false;
  bool any_other = false;
  bool zero = false;
  for (const Value value : of) {
    if (value.kind == Kind::none) {
      any_none = true;
    } else if (value.number()) {
      any_number = true;
      zero = zero || number(value) == 0;
      low = std::min(low, number(value));
      high = std::max(high, number(value));
    } else {
      any_other = true;
    }
  }
  if (any_number && any_other) return std::nullopt;
  if (!any_number) return values.string(any_none ? "anything" : "non_none");
  const std::string_view word = word_for(low, high, zero);
  if (any_none && word == "non_none") return std::nullopt;
  return values.string(word);
}

bool admits(const Values& values, Value stated, Value met) {
  if (!stated.present() || values.equal(stated, met)) return true;
  if (stated.kind != Kind::string) return false;
  const std::string_view word = values.text(stated);
  const bool none = met.kind == Kind::none;
  if (word == "anything") return true;
  if (word == "non_none") return !none;
  if (none) return word == "non_positive" || word == "non_negative";
  if (word == "non_zero") return !met.number() || number(met) != 0;
  if (!met.number()) return false;
  if (word == "above_zero") return number(met) > 0;
  if (word == "below_zero") return number(met) < 0;
  if (word == "non_positive") return number(met) <= 0;
  if (word == "non_negative") return number(met) >= 0;
  return false;
}

}  // namespace ttrace::invariant::compat
