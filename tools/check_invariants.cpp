// SPDX-License-Identifier: Apache-2.0
// See check_invariants.hpp.
#include "tools/check_invariants.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "invariant/builtin/report.hpp"
#include "invariant/compat/infer.hpp"
#include "invariant/invariant_file.hpp"
#include "invariant/result_files.hpp"
#include "invariant/trace_reader.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/check_learned.hpp"
#include "tools/cli.hpp"
#include "tools/event_files.hpp"
#include "tools/outcome_report.hpp"

namespace ttrace {
namespace {

void report(const CheckInvariantsOptions& options, invariant::Records& records,
            std::span<const invariant::Outcome> outcomes) {
  const OutcomeReport result{options.trace, records.values, records, outcomes};
  if (!options.output.empty()) {
    invariant::write_results({options.output, options.trace, options.invariants.back()}, records,
                             outcomes);
  }
  const OutputPaths paths = paths_of(options);
  write_outputs({paths.wants_text() ? outcomes_text(result, options.top) : "",
                 options.json.empty() ? "" : outcomes_json(result),
                 options.junit.empty() ? "" : outcomes_junit(result)},
                paths);
}

Outputs trouble_outputs(const std::string& message, const CheckInvariantsOptions& options) {
  const nlohmann::ordered_json json = {{"format", "ttrace-check-invariants"},
                                       {"version", 1},
                                       {"trace", options.trace},
                                       {"verdict", "trouble"},
                                       {"message", message}};
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  return {"", json.dump(1, ' ', false, kReplace) + "\n",
          builtin::trouble_as_junit(message, options.trace)};
}

int check_as_traincheck(const CheckInvariantsOptions& options) {
  invariant::Records records = invariant::read_as_traincheck(options.trace);
  invariant::Values& values = records.values;
  auto signatures = read_signatures(options.signatures, {&options.trace, 1}, values);
  const std::vector<invariant::Invariant> invariants = read_all_invariants(options, values);
  signatures.adopt(records.signatures);
  if (!options.quiet) {
    if (invariant::has_events(options.trace)) {
      note(options.trace + ": files and lines are those that ttrace-inspect " + options.trace +
           " --traincheck DIR writes");
    }
    if (signatures.empty()) note_no_signatures();
    note_damage(records.damage);
    note_unknown(signatures, values, records.records);
  }
  invariant::compat::CheckResult result;
  {
    Progress progress("checking", invariants.size(), options.quiet);
    const auto advance = [&progress](std::uint64_t, std::uint64_t) { progress.advance(1); };
    result = invariant::compat::check(values, signatures, records, invariants, advance);
  }
  if (!options.quiet) {
    note_tolerated(result.tolerated);
    if (result.unknown > 0) {
      note(std::to_string(result.unknown) +
           " invariants of relations that TrainCheck 0.2.0 does not check: counted as never "
           "applied");
    }
  }
  report(options, records, result.outcomes);
  const auto failed = [](const invariant::Outcome& outcome) {
    return outcome.verdict == invariant::Verdict::failed;
  };
  return std::ranges::any_of(result.outcomes, failed) ? kDiffer : kSame;
}

}  // namespace

OutputPaths paths_of(const CheckInvariantsOptions& options) {
  return {options.json, options.junit, options.quiet};
}

std::vector<invariant::Invariant> read_all_invariants(const CheckInvariantsOptions& options,
                                                      invariant::Values& values) {
  std::vector<invariant::Invariant> out;
  for (const std::string& path : options.invariants) {
    invariant::InvariantFile file = invariant::read_invariants(path, values);
    if (file.faults.lines > 0 && !options.quiet) {
      note(path + ": left out " + std::to_string(file.faults.lines) +
           " lines that are no invariant (the first: line " + std::to_string(file.faults.first) +
           ", " + file.faults.why + ")");
    }
    std::ranges::move(file.invariants, std::back_inserter(out));
  }
  return out;
}

int check_invariants(const CheckInvariantsOptions& options) {
  check_paths(paths_of(options));
  if (options.traincheck_compat && options.follow) {
    throw Trouble("--follow", options.trace, "is not what TrainCheck 0.2.0 does; leave out one");
  }
  try {
    return options.traincheck_compat ? check_as_traincheck(options) : check_learned(options);
  } catch (const std::exception& error) {
    write_trouble(trouble_outputs(error.what(), options), paths_of(options));
    throw;
  }
}

}  // namespace ttrace
