// SPDX-License-Identifier: Apache-2.0
// From outcomes to the numbers of a report: coverage, resolution, layouts.
#pragma once

#include <vector>

#include "diff/judge.hpp"
#include "diff/report.hpp"

namespace ttrace {

struct SummaryInput {
  const Side* reference = nullptr;
  const Side* candidate = nullptr;
  const Alignment* alignment = nullptr;
  const Limits* limits = nullptr;
  const std::vector<PairMetrics>* measured = nullptr;
  const std::vector<Outcome>* outcomes = nullptr;
};

[[nodiscard]] Report summarise(const SummaryInput& input);

// A later iteration, judged as well.
void append_iteration(Report& report, Report later);

// Class and place of the modules that the findings name.
void add_sources(const Trace& reference, Report& report);

}  // namespace ttrace
