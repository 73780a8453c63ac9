// SPDX-License-Identifier: Apache-2.0
// What floating datasets and attributes of two HDF5 files may differ by.
#pragma once

#include <optional>
#include <string>

#include "diff/metrics.hpp"

namespace ttrace {

// Of those that are given, all must hold. None: values must be equal.
struct Hdf5Limits {
  std::optional<double> norm;              // of |c - r| / |r| over all elements together
  std::optional<double> element_relative;  // of |c - r| / |r| of each; without r there is none
  std::optional<double> element_absolute;  // of |c - r| of each

  [[nodiscard]] bool any() const { return norm || element_relative || element_absolute; }
};

// Of the norms; infinite where the reference has none, and something is unequal.
[[nodiscard]] double relative_error_of(const Metrics& metrics);

// NaN and Inf on one side only, or of another sign, are within no limit.
[[nodiscard]] bool within(const Metrics& metrics, const Hdf5Limits& limits);

// "--rel 0.001 --max-abs 1e-05"; "" when there are none.
[[nodiscard]] std::string limits_text(const Hdf5Limits& limits);

}  // namespace ttrace
