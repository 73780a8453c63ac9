// SPDX-License-Identifier: Apache-2.0
// See hdf5_limits.hpp.
#include "diff/hdf5_limits.hpp"

#include <cmath>
#include <limits>

#include "diff/judge.hpp"

namespace ttrace {

// Squares of doubles may leave their range; then the largest error of one element bounds that of
// the norm.
double relative_error_of(const Metrics& metrics) {
  if (metrics.unequal == 0) return 0;
  const double errors = metrics.sums.error_squares, squares = metrics.sums.reference_squares;
  const bool exact = errors > 1e-280 && std::isfinite(errors) && std::isfinite(squares);
  if (exact && squares > 1e-280) return std::sqrt(errors / squares);
  if (metrics.zero_reference > 0 || metrics.max_error == 0) {
    return std::numeric_limits<double>::infinity();
  }
  return metrics.max_relative;
}

bool within(const Metrics& metrics, const Hdf5Limits& limits) {
  if (metrics.unequal == 0) return true;
  if (!limits.any() || metrics.nonfinite_mismatch > 0) return false;
  if (limits.norm && !(relative_error_of(metrics) <= *limits.norm)) return false;
  if (limits.element_absolute && !(metrics.max_error <= *limits.element_absolute)) return false;
  return !limits.element_relative ||
         (metrics.zero_reference == 0 && metrics.max_relative <= *limits.element_relative);
}

std::string limits_text(const Hdf5Limits& limits) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& limit) {
    if (limit) text += (text.empty() ? "" : " ") + std::string(name) + " " + short_number(*limit);
  };
  add("--rel", limits.norm);
  add("--max-rel", limits.element_relative);
  add("--max-abs", limits.element_absolute);
  return text;
}

}  // namespace ttrace
