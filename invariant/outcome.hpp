// SPDX-License-Identifier: Apache-2.0
// What checking a trace against an invariant came to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "invariant/invariant.hpp"
#include "invariant/record.hpp"

namespace ttrace::invariant {

// possible: violated, but weak, so that it may never have been a rule.
enum class Verdict : std::uint8_t { passed, failed, possible, not_triggered };

// One example that does not hold though the precondition does.
struct Violation {
  std::vector<std::uint32_t> records;  // the evidence: in Records::records
  std::optional<std::int64_t> step;    // meta_vars.step of the first
  std::int64_t process = 0;            // of the first
  std::int64_t time = 0;               // the latest of the evidence
};

struct Outcome {
  const Invariant* invariant = nullptr;
  Verdict verdict = Verdict::not_triggered;
  std::vector<Violation> violations;  // all of them, by time; empty unless it failed
};

}  // namespace ttrace::invariant
