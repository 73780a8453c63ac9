// SPDX-License-Identifier: Apache-2.0
// Invariants from traces of healthy runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "invariant/invariant.hpp"
#include "invariant/record.hpp"
#include "invariant/signature.hpp"
#include "invariant/tracker.hpp"

namespace ttrace::invariant {

// One run. All traces of an inference have one pool of values.
struct TraceInput {
  std::span<const Record> records;
  // Written by TrainCheck's default tracker, which loses the last state records.
  bool loses_tail = false;
};

struct InferOptions {
  std::uint64_t least_positive = 2;  // a hypothesis with fewer examples in its favour is dropped
};

struct Inference {
  std::vector<Invariant> invariants;  // in the order of relation, text, parameters, precondition
  std::vector<Rejected> rejected;     // "only one positive example", "Precondition not found"
  std::uint64_t implied = 0;          // left out: they follow from others
  Gaps gaps;
};

[[nodiscard]] Inference infer(Values& values, std::span<const TraceInput> traces,
                              const Signatures* signatures, const InferOptions& options = {});

}  // namespace ttrace::invariant
