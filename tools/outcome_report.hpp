// SPDX-License-Identifier: Apache-2.0
// What a check against learned invariants came to: text, JSON, JUnit.
#pragma once

#include <span>
#include <string>

#include "invariant/outcome.hpp"

namespace ttrace {

struct OutcomeReport {
  std::string trace;
  const invariant::Values& values;
  const invariant::Records& records;
  std::span<const invariant::Outcome> outcomes;

  [[nodiscard]] std::size_t count(invariant::Verdict verdict) const;
  // Those that failed, by the step and the time of their first violation.
  [[nodiscard]] std::vector<const invariant::Outcome*> failed() const;
};

// `top`: how many violated invariants.
[[nodiscard]] std::string outcomes_text(const OutcomeReport& report, std::size_t top);
[[nodiscard]] std::string outcomes_json(const OutcomeReport& report);
[[nodiscard]] std::string outcomes_junit(const OutcomeReport& report);

}  // namespace ttrace
