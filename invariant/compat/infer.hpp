// SPDX-License-Identifier: Apache-2.0
// Inference and checks as TrainCheck 0.2.0 does them, so that users can compare; without its
// sampling. docs/invariants.md says where the default mode differs, and why.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "invariant/compat/trace.hpp"
#include "invariant/outcome.hpp"

namespace ttrace::invariant::compat {

// Called as work goes on, with shares of `total`.
using Advance = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct InferOptions {
  std::vector<std::string> relations;  // empty: all
  bool keep_rejected = false;
  Advance advance;
};

struct Inference {
  std::vector<Invariant> invariants;
  std::vector<Rejected> rejected;
  Tolerated tolerated;
};

// The traces' values are of the one pool; their records are changed on the way.
[[nodiscard]] Inference infer(Values& values, const Signatures& signatures,
                              std::span<Records> traces, const InferOptions& options = {});

struct CheckResult {
  std::vector<Outcome> outcomes;  // in the order of the invariants
  std::uint64_t unknown = 0;      // invariants of relations that are none of TrainCheck's
  Tolerated tolerated;
};

[[nodiscard]] CheckResult check(Values& values, const Signatures& signatures, Records& trace,
                                std::span<const Invariant> invariants, const Advance& advance = {});

}  // namespace ttrace::invariant::compat
