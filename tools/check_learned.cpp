// SPDX-License-Identifier: Apache-2.0
// See check_learned.hpp.
#include "tools/check_learned.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <thread>

#include "invariant/follow.hpp"
#include "invariant/invariant_file.hpp"
#include "invariant/report.hpp"
#include "invariant/result_files.hpp"
#include "invariant/trace_reader.hpp"
#include "tools/cli.hpp"
#include "tools/event_files.hpp"
#include "tools/trace_state.hpp"

namespace ttrace {
namespace {

using invariant::CheckResult;
using invariant::Verdict;

// Seconds; other nodes may end a little later than the first, which says that the run has ended.
constexpr double kAfterTheRun = 1;

volatile std::sig_atomic_t stopped = 0;

void stop(int /*signal*/) { stopped = 1; }

void report(const CheckInvariantsOptions& options, const invariant::ReportInput& input) {
  const OutputPaths paths = paths_of(options);
  invariant::ReportOptions text;
  text.top = options.top;
  text.color = use_color(ColorMode::automatic);
  write_outputs({paths.wants_text() ? text_report(input, text) : "",
                 options.json.empty() ? "" : json_report(input),
                 options.junit.empty() ? "" : junit_report(input)},
                paths);
}

int code_of(const CheckResult& result, const invariant::ReportInput& input) {
  if (!input.nan_losses.empty() || result.count(Verdict::failed) > 0) return kDiffer;
  return result.count(Verdict::passed) + result.count(Verdict::possible) > 0 ? kSame : kTrouble;
}

// TrainCheck's files name records by their number.
std::vector<invariant::Outcome> outcomes_of(const CheckResult& result,
                                            const invariant::Records& records) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> rows;
  for (std::uint32_t i = 0; i < records.records.size(); ++i) {
    rows[{records.records[i].file, records.records[i].line}] = i;
  }
  std::vector<invariant::Outcome> outcomes;
  for (const invariant::Judgement& judgement : result.judgements) {
    invariant::Outcome outcome{judgement.invariant, judgement.verdict, {}};
    if (outcome.verdict == Verdict::possible) {
      outcome.verdict = Verdict::passed;
      outcomes.push_back(std::move(outcome));
      continue;
    }
    for (const invariant::Evidence& evidence : judgement.evidence) {
      invariant::Violation violation;
      violation.records.push_back(rows.at({evidence.place.file, evidence.place.line}));
      if (evidence.pair) {
        violation.records.push_back(rows.at({evidence.other.file, evidence.other.line}));
      }
      if (evidence.place.step != invariant::kNoStep) violation.step = evidence.place.step;
      violation.process = evidence.place.process;
      violation.time = std::max(evidence.place.time, evidence.other.time);
      outcome.violations.push_back(std::move(violation));
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

// What the trace itself says of how it was made.
void note_origin(const std::string& trace, const TraceState& state) {
  if (state.invariants.empty()) return;
  note(trace + ": holds only what the invariants of " + state.invariants +
       " need (ttrace-capture --invariants); others may be violated by what was left out");
}

int check_whole(const CheckInvariantsOptions& options, invariant::Values& values,
                invariant::Signatures& signatures,
                std::span<const invariant::Invariant> invariants) {
  const TraceState state = trace_state(options.trace);
  invariant::Records records = invariant::read_trace(options.trace, values);
  signatures.adopt(records.signatures);
  if (!options.quiet) {
    note_origin(options.trace, state);
    note_damage(records.damage);
  }
  if (signatures.empty() && !options.quiet) note_no_signatures();
  if (!options.quiet && records.signatures.empty()) {
    note_unknown(signatures, values, records.records);
  }
  const invariant::TraceInput trace{records.records, invariant::loses_tail(records)};
  const CheckResult result = invariant::check(values, trace, invariants, &signatures);
  const invariant::ReportInput input{&result,         &values,       records.files,
                                     records.damage,  options.trace, records.nan_losses,
                                     early_end(state)};
  report(options, input);
  if (!options.output.empty()) {
    const std::vector<invariant::Outcome> outcomes = outcomes_of(result, records);
    records.values = std::move(values);  // as the writer expects them
    invariant::write_results({options.output, options.trace, options.invariants.back()}, records,
                             outcomes);
  }
  return code_of(result, input);
}

// Invariants that were not violated at the last look.
class News {
 public:
  void print(const invariant::ReportInput& input) {
    const auto& judgements = input.result->judgements;
    told_.resize(judgements.size(), false);
    for (std::size_t i = 0; i < judgements.size(); ++i) {
      if (told_[i] || judgements[i].verdict != Verdict::failed) continue;
      told_[i] = true;
      std::printf("violated: %s\n  %s\n", judgements[i].invariant->text.c_str(),
                  evidence_text(input, judgements[i].evidence[0]).c_str());
    }
    std::fflush(stdout);
  }

 private:
  std::vector<bool> told_;
};

int check_growing(const CheckInvariantsOptions& options, invariant::Values& values,
                  invariant::Signatures& signatures,
                  std::span<const invariant::Invariant> invariants) {
  using Clock = std::chrono::steady_clock;
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  invariant::Follower follower(options.trace, values, invariants, signatures);
  News news;
  std::uint64_t told = 0;
  Clock::time_point grew = Clock::now();
  double idle = options.idle_seconds;
  while (stopped == 0 && Clock::now() - grew < std::chrono::duration<double>(idle)) {
    // Before the look: what was written by then is seen by it.
    if (trace_state(options.trace).finished) idle = std::min(idle, kAfterTheRun);
    if (follower.poll()) grew = Clock::now();
    if (follower.violations() != told && paths_of(options).wants_text()) {
      told = follower.violations();
      const CheckResult result = follower.result();
      news.print({&result, &values, follower.files(), {}, options.trace, {}, ""});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  follower.finish();
  const CheckResult result = follower.result();
  if (follower.files().empty()) {
    throw Trouble("no trace", options.trace, "nothing appeared within --idle seconds");
  }
  const invariant::ReportInput input{&result,
                                     &values,
                                     follower.files(),
                                     follower.damage(),
                                     options.trace,
                                     follower.nan_losses(),
                                     early_end(trace_state(options.trace))};
  report(options, input);
  return code_of(result, input);
}

}  // namespace

int check_learned(const CheckInvariantsOptions& options) {
  invariant::Values values;
  auto signatures = read_signatures(options.signatures, {&options.trace, 1}, values);
  const std::vector<invariant::Invariant> invariants = read_all_invariants(options, values);
  if (options.follow) {
    if (!options.output.empty()) {
      throw Trouble("--output", options.output, "needs the whole trace; leave out --follow");
    }
    return check_growing(options, values, signatures, invariants);
  }
  return check_whole(options, values, signatures, invariants);
}

}  // namespace ttrace
