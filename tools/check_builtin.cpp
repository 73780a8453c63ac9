// SPDX-License-Identifier: Apache-2.0
// See check_builtin.hpp.
#include "tools/check_builtin.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "invariant/builtin/report.hpp"
#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/trace.hpp"
#include "tools/cli.hpp"
#include "tools/outputs.hpp"
#include "tools/trace_state.hpp"

namespace ttrace {
namespace {

// A trace that shows what a program computes by itself.
void refuse_others(const Trace& trace, const std::string& path) {
  if (trace.logical()) {
    throw Trouble("check", path,
                  "ttrace-merge wrote it: what the ranks held is gone, check the trace it is of");
  }
  const nlohmann::json document = nlohmann::json::parse(trace.json(), nullptr, false);
  const auto replay = nlohmann::json::json_pointer("/options/replay");
  if (document.is_object() && document.contains(replay) && !document.at(replay).is_null()) {
    throw Trouble("check", path, "it is a replay: its tensors are another run's, check that one");
  }
}

builtin::CheckReport run(const BuiltinOptions& options) {
  const Trace trace = Trace::open(options.trace);
  refuse_others(trace, options.trace);
  const std::size_t steps = builtin::count_checks(options.checks) * trace.iterations().size();
  Progress progress("checking", steps, options.quiet);
  builtin::CheckReport report = builtin::run_checks(trace, options.checks, [&progress] {
    check_mapped_files();
    progress.advance(1);
  });
  check_mapped_files();  // before anything that was read is told
  report.ends_early = early_end(trace_state(options.trace));
  return report;
}

}  // namespace

int check_builtin(const BuiltinOptions& options) {
  const OutputPaths paths{options.json, options.junit, options.quiet};
  check_paths(paths);
  builtin::CheckReport report;
  try {
    report = run(options);
  } catch (const std::exception& error) {
    write_trouble({"", builtin::trouble_as_json(error.what(), options.trace),
                   builtin::trouble_as_junit(error.what(), options.trace)},
                  paths);
    throw;
  }
  write_outputs({paths.wants_text() ? builtin::as_text(report, options.top) : "",
                 options.json.empty() ? "" : builtin::as_json(report),
                 options.junit.empty() ? "" : builtin::as_junit(report)},
                paths);
  switch (report.verdict()) {
    case builtin::Verdict::passed:
      return kSame;
    case builtin::Verdict::violated:
      return kDiffer;
    case builtin::Verdict::not_checked:
      break;
  }
  throw Trouble("check", options.trace,
                "nothing could be checked; the report says what each check needs");
}

void list_builtin() {
  for (const builtin::CheckEntry& check : builtin::all_checks()) {
    std::printf("%-10s %s\n", std::string(check.name).c_str(), std::string(check.asks).c_str());
  }
}

}  // namespace ttrace
