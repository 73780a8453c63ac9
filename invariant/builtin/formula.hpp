// SPDX-License-Identifier: Apache-2.0
// The update rules of torch's SGD, Adam and AdamW (arXiv 1412.6980, 1711.05101), an element at a
// time, in double. States are taken as they were recorded after the step where there are, so that
// roundings of the state do not count against the parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libttrace/trace.hpp"

namespace ttrace::builtin {

enum class Rule : std::uint8_t { sgd, adam };

struct Formula {
  Rule rule = Rule::sgd;
  double rate = 0;
  double decay = 0;
  bool decoupled = false;  // AdamW: the decay is not part of the gradient
  bool maximize = false;
  double momentum = 0;  // SGD
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0;  // Adam
  double beta2 = 0;
  double epsilon = 0;
  bool amsgrad = false;
  double first_correction = 1;  // of the moments' start at zero
  double second_correction = 1;

  // What the optimizer sees of the gradient.
  [[nodiscard]] double seen(double gradient, double before) const;
  [[nodiscard]] double first_moment(double moment, double seen) const;
  [[nodiscard]] double second_moment(double moment, double seen) const;
  // Of SGD; the first gradient is taken whole.
  [[nodiscard]] double buffer(double buffer, double seen, bool fresh) const;
  // The change that the step subtracts, decoupled decay aside.
  [[nodiscard]] double adam_change(double moment, double second) const;
  [[nodiscard]] double sgd_change(double seen, double buffer) const;
};

// nullopt, and why: an optimizer whose rule is not known here, settings that are missing.
// `steps`: taken before, -1 where that is not known.
[[nodiscard]] std::optional<Formula> formula_of(const UpdateGroup& group, std::int64_t steps,
                                                std::string& why);

}  // namespace ttrace::builtin
