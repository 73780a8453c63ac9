// SPDX-License-Identifier: Apache-2.0
// A check of collectives, which has nothing to say of a run without any.
#pragma once

#include "invariant/builtin/check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {

class CollectiveCheck : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) final {
    const CollectiveLog& log = evidence.collectives();
    if (log.empty()) {
      ++outcome.unchecked["no collectives were recorded (ttrace-capture --comm full)"];
    } else {
      look_at_calls(evidence, log, iteration, outcome);
    }
  }

 protected:
  // What members do not agree on; the texts are to follow.
  static Violation started(const Joint& joint) {
    Violation violation;
    violation.certainty = joint.certain ? Certainty::certain : Certainty::likely;
    violation.iteration = joint.iteration;
    violation.microbatch = joint.calls.front().row->microbatch;
    violation.module = joint.calls.front().row->module;
    return violation;
  }

 private:
  virtual void look_at_calls(const Evidence& evidence, const CollectiveLog& log,
                             std::int64_t iteration, Outcome& outcome) = 0;
};

}  // namespace ttrace::builtin
