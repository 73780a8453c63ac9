// SPDX-License-Identifier: Apache-2.0
// See contain.hpp: words for many values.
#include <algorithm>
#include <limits>

#include "invariant/compat/contain.hpp"

namespace ttrace::invariant::compat {
namespace {

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
      zero = zero || as_double(value) == 0;
      low = std::min(low, as_double(value));
      high = std::max(high, as_double(value));
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

}  // namespace ttrace::invariant::compat
