// SPDX-License-Identifier: Apache-2.0
// What a check found, for a reader, a program and a test dashboard.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "invariant/checker.hpp"

namespace ttrace::invariant {

struct ReportInput {
  const CheckResult* result = nullptr;
  const Values* values = nullptr;
  std::vector<std::string> files;  // as Place::file numbers them
  std::vector<Damage> damage;      // of the trace's files
  std::string trace;               // its folder
  std::vector<NaNLoss> nan_losses;
  std::string ended;  // why it may end early, "the run was killed (exit code 137)"
};

struct ReportOptions {
  std::size_t top = 10;  // of groups, of invariants in each, of violations
  bool color = false;
  bool verbose = false;  // what holds and what did not apply, too
};

// Violated invariants that name one function, or one attribute.
struct Culprit {
  Name name = 0;
  bool attribute = false;
  std::vector<std::size_t> judgements;  // in CheckResult::judgements, by the first violation
};
// By the first step of a violation; of one step, the larger group first. Each violated invariant
// is in one group.
[[nodiscard]] std::vector<Culprit> culprits(const CheckResult& result, const Values& values);

[[nodiscard]] std::string text_report(const ReportInput& input, const ReportOptions& options);
[[nodiscard]] std::string json_report(const ReportInput& input);
[[nodiscard]] std::string junit_report(const ReportInput& input);

// "in stage training", "except in step 1".
[[nodiscard]] std::string condition_text(const Values& values, const Invariant& invariant);
// "step 3"; "before step 1" of our own traces, where they count from 1.
[[nodiscard]] std::string step_text(const ReportInput& input, std::int64_t step);
// "3 ends of calls that began before the file (the first: event 4), its end is cut off"
[[nodiscard]] std::string damage_text(const Damage& damage);
// "the loss is NaN, first in step 3, process 7, event 12 of rank00000/events.bin, from train.py:40"
[[nodiscard]] std::string nan_text(const ReportInput& input, const NaNLoss& loss);
// Why the trace may end before the run did; empty: it does not.
[[nodiscard]] std::vector<std::string> early_ends(const ReportInput& input, std::int64_t last_step);
// "violated in 1 of 12 calls of SGD.step()"
[[nodiscard]] std::string count_text(const Values& values, const Judgement& judgement);
// "step 3, stage training, process 7, trace_API_7_9.log:120: SGD.step(): no call of f() before"
[[nodiscard]] std::string evidence_text(const ReportInput& input, const Evidence& evidence);

}  // namespace ttrace::invariant
