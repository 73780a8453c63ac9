// SPDX-License-Identifier: Apache-2.0
// The comparison of two traces, from the open directories to the report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "diff/backend.hpp"
#include "diff/limits.hpp"
#include "diff/noise.hpp"
#include "diff/report.hpp"

namespace ttrace {

struct CompareOptions {
  std::optional<std::int64_t> iteration;  // default: the first that both have
  std::string filter;                     // glob of keys, "" = all
  std::vector<LayoutRule> rules;
  std::function<Limits(const Alignment&, const Flow&)> limits;
  bool trust_hash = true;        // false: what has equal hashes is read all the same
  bool every_iteration = false;  // judge all that both have, not only the first
  const Trace* high = nullptr;  // a replay of the candidate in higher precision: `reference` is one
  std::vector<const Trace*> noise;  // perturbed runs of the reference's program
  StatisticLimits statistic_limits;
  // Called with elements done and in all; from one thread at a time.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

// Throws Trouble when there is nothing to compare: no common iteration, no common tensor.
[[nodiscard]] Report compare(const Trace& reference, const Trace& candidate, const Backend& backend,
                             const CompareOptions& options);

// What is wrong with a trace as a whole: ranks and segments that are not there, ranks that died or
// were degraded (incomplete.cpp).
// Why a run may lack tensors: its command failed, or its capture was told to leave some out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> circumstances(const Trace& trace);

// What a run itself says of an update that it made and could not record; "" when it says nothing.
[[nodiscard]] std::string unrecorded_update(const Trace& trace, const std::string& side);

[[nodiscard]] std::vector<Finding> trace_findings(const Trace& trace, const std::string& side,
                                                  std::int64_t iteration);

}  // namespace ttrace
