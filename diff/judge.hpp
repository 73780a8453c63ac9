// SPDX-License-Identifier: Apache-2.0
// From measurements and limits to findings. The statistic is the norm of the error against the norm
// of the reference; integers and start weights must be equal; NaN never passes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/limits.hpp"
#include "diff/noise.hpp"
#include "diff/seed.hpp"
#include "diff/statistics.hpp"
#include "diff/stream.hpp"

namespace ttrace {

inline constexpr double kHugeScore = 1e12;  // an error where none is allowed

// The result of one pair.
struct Outcome {
  bool compared = false;
  double error = 0;            // relative to the norm of the reference (absolute where that is 0)
  double limit = 0;            // in the same unit, floors included
  double score = 0;            // error / limit
  double rounding = 0;         // the largest error that rounding explains; an error that is found
                               // takes nothing away from it, as it does from the limit (noise.hpp)
  std::uint64_t excluded = 0;  // elements that an update says nothing about
  bool equal = false;          // not one element differs
  bool sum_is_right = false;   // of a reduced gradient whose copies are addends
  std::string statistic;       // by which it was judged; "": the norm
  std::optional<Resolution> resolution;
  std::optional<PooledTerm> pooled;
  std::array<double, kStatisticKinds> scores{};  // of each statistic that applies
  std::vector<Finding> findings;
};

struct JudgeInput {
  const Side* reference = nullptr;
  const Side* candidate = nullptr;
  const Alignment* alignment = nullptr;
  const Limits* limits = nullptr;
  const Seeds* seeds = nullptr;
  const std::vector<PairMetrics>* measured = nullptr;
  const Backend* backend = nullptr;
  const Flow* flow = nullptr;
  const Noise* noise = nullptr;  // nullptr: limits are all there is
};

// One outcome a pair, by index.
[[nodiscard]] std::vector<Outcome> judge(const JudgeInput& input);

// Values that are still to be added over an axis (partial_incomplete) are no error where that sum
// is right and something completes it: the module around returns the right output, the next tensor
// that enters a module without being a module's output is right, or, backwards, the reduced
// gradients of its parameters or, without any, the next gradient. A reduced gradient itself may be
// left to the optimizer to add up (DTensor's do); undeclared, all that the step made of it must be
// right. Takes those findings back.
void accept_completed_sums(const Alignment& alignment, const Side& reference, const Flow& flow,
                           std::vector<Outcome>& outcomes);

// ---- evidence (evidence.cpp) ----

// The factor by which the candidate is the reference, when it is one factor: what is left after
// taking it out is within `limit`. 0 when the candidate is zero.
[[nodiscard]] std::optional<double> common_factor(const Sums& sums, double limit);
// "exactly 2", "exactly 1/4", "1.0312": a small ratio of integers when it is within `limit` of one.
[[nodiscard]] std::string factor_text(double factor, double limit);

// Ranks whose own part exceeds the limit, if not all do.
[[nodiscard]] std::vector<std::int32_t> odd_ranks(const PairMetrics& metrics, double limit);

// Adds what explains an error: factor, odd ranks and their boxes, worst element, histogram.
void add_evidence(const Pair& pair, const PairMetrics& metrics, double limit, Finding& finding);

// Where replicas are unlike each other: how far each rank is from the reference, and which of them
// are within the limit, if some are. Ranks that hold the same are named together.
void add_copies(const LogicalTensor& candidate, const PairMetrics& metrics, double limit,
                Finding& finding);

// Every coordinate of the axes to be added over is there.
[[nodiscard]] bool all_addends(const LogicalTensor& tensor);

[[nodiscard]] std::string short_number(double value);  // three digits

}  // namespace ttrace
