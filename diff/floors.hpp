// SPDX-License-Identifier: Apache-2.0
// Gradients that cancel. A sum whose terms cancel carries the rounding of its terms, however small
// it comes out: the bias of attention's keys has the gradient 0 in exact arithmetic, and pure
// rounding in a run. Relative to such a tensor every error is large, so its limit needs a scale of
// its own, a floor: the size of the terms.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/limits.hpp"
#include "diff/stream.hpp"

namespace ttrace {

class Floors {
 public:
  Floors(const Side& reference, const Alignment& alignment, const Limits& limits,
         const std::vector<PairMetrics>& measured);

  // An absolute error (a norm) that rounding of the terms explains; 0 where no floor is known.
  // Reads the reference's inputs and gradients of the module, so ask only when it may matter.
  [[nodiscard]] double of(std::size_t pair);
  // Epsilon times the size of the terms of a parameter's gradient; 0 when they are not known.
  // May be asked from several threads.
  [[nodiscard]] double rounding(std::size_t pair);

 private:
  [[nodiscard]] double of_parameter(std::size_t pair);
  [[nodiscard]] double of_activation(std::size_t pair);
  // What dy is taken for: itself, or with the terms that it was itself made of.
  enum class Size : std::uint8_t { own, made_of };
  // sqrt(sum over tokens of |dy|^2 |x|^2) of a parameter's gradient.
  [[nodiscard]] std::optional<double> terms_of(const Key& gradient, Size size);
  [[nodiscard]] double terms_of_call(const Key& call, bool weight, Size size);
  [[nodiscard]] double largest_sibling(const Key& gradient) const;  // RMS; 0: there is none
  [[nodiscard]] const LogicalTensor* input_of(const Key& call) const;
  [[nodiscard]] double unit();
  [[nodiscard]] double find_unit();

  const Side& reference_;
  const Alignment& alignment_;
  const Limits& limits_;
  const std::vector<PairMetrics>& measured_;
  // Largest RMS of the gradients of a module's children and of its own, by module and micro-batch.
  std::map<std::pair<std::string, std::int32_t>, double> siblings_;
  std::once_flag unit_known_;
  double unit_ = 1;
};

}  // namespace ttrace
