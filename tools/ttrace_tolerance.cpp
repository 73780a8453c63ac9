// SPDX-License-Identifier: Apache-2.0
// ttrace-tolerance: limits from runs that are known to be right.
//   perturbed runs of the reference → how large their noise is, tensor by tensor
//   --calibrate: a healthy layout against its replay → the largest score of each statistic
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "diff/compare.hpp"
#include "libttrace/core/trouble.hpp"
#include "tolerance/own.hpp"
#include "tolerance/table.hpp"
#include "tools/cli.hpp"
#include "tools/diff_modes.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-tolerance reference.trace perturbed-1.trace perturbed-2.trace -o limits.json\n"
    "\n"
    "Writes limits for ttrace-diff REFERENCE CANDIDATE --limits: how far runs of the reference's\n"
    "command that ttrace-capture --perturb SEED has moved by single units in the last place come\n"
    "from the reference. Two runs will do for norms, eight for losses and small factors.\n"
    "With --calibrate the traces are OWN CANDIDATE of a layout that is known to be right (--high\n"
    "HIGH beside them): limits that its scores exceed are widened, never narrowed.\n"
    "Exit code 0, or 2 when nothing was written.";

struct Options {
  std::vector<std::string> traces;
  std::string output;
  std::string from;
  std::string high;
  bool calibrate = false;
  bool quiet = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("TRACE", options.traces, "reference and perturbed runs, or OWN and CANDIDATE")
      ->required()
      ->expected(2, 1000);
  app.add_option("-o,--output", options.output, "file to write")->required()->type_name("FILE");
  app.add_option("--from", options.from, "begin with what this file has learnt")->type_name("FILE");
  app.add_flag("--calibrate", options.calibrate, "widen limits by a healthy layout's scores");
  app.add_option("--high", options.high, "with --calibrate: the replay in higher precision")
      ->type_name("TRACE");
  app.add_flag("-q,--quiet", options.quiet, "print nothing but trouble");
}

std::optional<std::uint64_t> seed_of(const Trace& trace) {
  const auto document = nlohmann::json::parse(trace.json(), nullptr, false);
  const auto place = nlohmann::json::json_pointer("/options/perturb");
  if (!document.is_object() || !document.contains(place)) return std::nullopt;
  const auto& seed = document.at(place);
  return seed.is_number_unsigned() ? std::optional(seed.get<std::uint64_t>()) : std::nullopt;
}

void measure_noise(const Options& options, LimitsTable& table) {
  const Trace reference = Trace::open(options.traces.front());
  table.reference = std::filesystem::absolute(options.traces.front()).string();
  table.reference_run_id = reference.run_id();
  table.tensors.clear();
  table.runs.clear();
  Progress progress("comparing perturbed runs", options.traces.size() - 1, options.quiet);
  for (std::size_t i = 1; i < options.traces.size(); ++i) {
    const Trace perturbed = Trace::open(options.traces[i]);
    if (!seed_of(perturbed)) {
      throw Trouble("arguments", options.traces[i],
                    "is no perturbed run, make it with ttrace-capture --perturb SEED");
    }
    table.runs.push_back({std::filesystem::absolute(options.traces[i]).string(), perturbed.run_id(),
                          seed_of(perturbed)});
    for (std::size_t j = 0; j + 1 < table.runs.size(); ++j) {
      if (table.runs[j].seed == table.runs[i - 1].seed) {
        throw Trouble("arguments", options.traces[i],
                      "has the seed of " + table.runs[j].path + ", which says the same twice");
      }
    }
    add_noise(table, reference, perturbed);
    progress.advance(1);
  }
  finish_noise(table);
}

void calibrate(const Options& options, LimitsTable& table) {
  if (options.traces.size() != 2) {
    throw Trouble("arguments", "--calibrate", "takes two traces, OWN and CANDIDATE");
  }
  const OpenTraces traces = open_traces({options.traces[0], options.traces[1], options.high, ""});
  if (!traces.local || !traces.high) {
    throw Trouble("arguments", "--calibrate",
                  "needs a replay of the candidate first, and --high, one in higher precision");
  }
  CompareOptions compare_options;
  compare_options.every_iteration = true;
  compare_options.high = &*traces.high;
  compare_options.limits = own_limits;
  const auto backend = make_cpu_backend();
  const Report report = compare(traces.reference, traces.candidate, *backend, compare_options);
  for (std::size_t kind = 0; kind < kStatisticKinds; ++kind) {
    const double score = report.largest_scores[kind];
    const auto statistic = static_cast<StatisticKind>(kind);
    auto known = std::find_if(table.healthy.begin(), table.healthy.end(),
                              [&](const HealthyScore& entry) { return entry.kind == statistic; });
    if (known == table.healthy.end()) known = table.healthy.insert(known, {statistic, 0});
    known->score = std::max(known->score, score);
    if (options.quiet || score == 0) continue;
    std::printf("%-15s %.3f of its limit\n", std::string(name_of(statistic)).c_str(), score);
  }
  table.calibrated_on.push_back(std::filesystem::absolute(options.traces[1]).string());
}

void warn_of_wider(const LimitsTable& table) {
  const StatisticLimits wider = widen({}, table.healthy);
  for (std::size_t kind = 0; kind < kStatisticKinds; ++kind) {
    if (!(wider.widened[kind] > 1)) continue;
    std::fprintf(stderr,
                 "ttrace-tolerance: warning: limits of %s are widened by %.3g: errors that much "
                 "larger will pass; be sure that the layout is right\n",
                 std::string(name_of(static_cast<StatisticKind>(kind))).c_str(),
                 wider.widened[kind]);
  }
}

int run(const Options& options) {
  LimitsTable table;
  if (!options.from.empty()) table = read_limits(options.from);
  if (options.calibrate) {
    calibrate(options, table);
  } else {
    measure_noise(options, table);
  }
  warn_of_wider(table);
  write_limits(table, options.output);
  if (!options.quiet) {
    std::printf("wrote %s: %zu tensors, %zu perturbed runs, calibrated on %zu\n",
                options.output.c_str(), table.tensors.size(), table.runs.size(),
                table.calibrated_on.size());
  }
  return kSame;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-tolerance", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    return run(options);
  });
}
