// SPDX-License-Identifier: Apache-2.0
// Which gradients the results of sums become: the final gradient of a parameter is, element by
// element, what a sum put out, times a number (1, or one over the ranks or the samples).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "invariant/builtin/collective/log.hpp"

namespace ttrace::builtin {

struct Became {
  const Collective* row = nullptr;   // the sum
  const Record* gradient = nullptr;  // "reduced", of a parameter
  double factor = 1;                 // gradient = factor * what the sum put out
};

class GradientFlow {
 public:
  // Of all sums of a rank in an iteration, in the order of the calls.
  const std::vector<Became>& of(const Evidence& evidence, std::int32_t rank,
                                std::int64_t iteration);

 private:
  std::map<std::pair<std::int64_t, std::int32_t>, std::vector<Became>> known_;
};

// The number by which nearly all gradients are their addends' sums; calls in `without` do not
// count. nullopt: they do not agree, or there are too few.
[[nodiscard]] std::optional<double> usual_weight(const std::vector<Became>& flow,
                                                 const std::set<const Collective*>& without);

}  // namespace ttrace::builtin
