// SPDX-License-Identifier: Apache-2.0
// ttrace-infer: what held in healthy runs, for ttrace-check -i.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include "invariant/compat/infer.hpp"
#include "invariant/compat/relation.hpp"
#include "invariant/infer.hpp"
#include "invariant/invariant_file.hpp"
#include "invariant/trace_reader.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"
#include "tools/event_files.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-infer healthy1/ healthy2/ -o invariants.json\n"
    "         ttrace-check doubtful/ -i invariants.json\n\n"
    "Infers invariants from traces of healthy runs: what calls contain, which values stay equal,\n"
    "what comes before what, and where each of these holds. Reads what traincheck-collect wrote.\n"
    "Exit code 0: invariants were written; 2: trouble, or there are none.";

struct Options {
  std::vector<std::string> traces;
  std::string output;
  std::string signatures;
  std::string failed;
  std::vector<std::string> relations;
  bool traincheck_compat = false;
  bool quiet = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("TRACE", options.traces, "folders with traces of healthy runs, or single files")
      ->required();
  app.add_option("-o,--output", options.output, "file for the invariants, one a line")
      ->type_name("FILE")
      ->required();
  app.add_option("--signatures", options.signatures,
                 "parameters of the functions (signatures.json in a trace's folder)")
      ->type_name("FILE");
  app.add_option("--failed", options.failed, "also write what was rejected, with the reason")
      ->type_name("FILE");
  app.add_option("--relation", options.relations, "only these (all)")->type_name("NAME...");
  app.add_flag("--traincheck-compat", options.traincheck_compat,
               "exactly as TrainCheck 0.2.0 infers, its faults included");
  app.add_flag("-q,--quiet", options.quiet, "no notes, no progress, no summary");
}

std::vector<invariant::Records> read_traces(const Options& options, invariant::Values& values) {
  std::vector<invariant::Records> out;
  Progress progress("reading", options.traces.size(), options.quiet);
  for (const std::string& trace : options.traces) {
    out.push_back(options.traincheck_compat ? invariant::read_as_traincheck(trace, values)
                                            : invariant::read_trace(trace, values));
    if (!options.quiet) note_damage(out.back().damage);
    progress.advance(1);
  }
  return out;
}

void report(const Options& options, std::size_t invariants,
            std::span<const invariant::Records> traces) {
  if (invariants == 0) {
    throw Trouble("infer", options.traces[0],
                  "nothing held at least twice; a trace of a few steps of training is needed");
  }
  if (options.quiet) return;
  std::size_t records = 0;
  for (const auto& trace : traces) records += trace.records.size();
  std::printf("%zu invariants from %zu records of %zu %s: %s\n", invariants, records, traces.size(),
              traces.size() == 1 ? "trace" : "traces", options.output.c_str());
}

void note_weak(std::span<const invariant::Invariant> invariants, std::size_t traces) {
  if (traces == 1) {
    note(
        "learned from one run, whose seed, data and settings are taken for rules, orders above "
        "all: give two runs or more that differ in what may differ later");
  }
  const auto weak = std::ranges::count_if(invariants, &invariant::Invariant::weak);
  if (weak == 0) return;
  note(std::to_string(weak) +
       " of them are orders that held two or three times: ttrace-check calls their violations "
       "possible and returns 0 if there are no others; more steps or runs make them certain");
}

int infer_invariants(const Options& options) {
  if (!options.relations.empty()) {
    throw Trouble("--relation", options.relations[0], "is for --traincheck-compat");
  }
  invariant::Values values;
  const std::vector<invariant::Records> traces = read_traces(options, values);
  auto signatures = read_signatures(options.signatures, options.traces, values);
  for (const auto& trace : traces) signatures.adopt(trace.signatures);
  if (signatures.empty() && !options.quiet) note_no_signatures();
  std::vector<invariant::TraceInput> inputs;
  for (const auto& trace : traces) {
    inputs.push_back({trace.records, invariant::loses_tail(trace)});
  }
  const invariant::Inference found = invariant::infer(values, inputs, &signatures);
  if (found.invariants.empty()) report(options, 0, traces);  // before a file is written
  invariant::write_invariants(options.output, values, found.invariants);
  if (!options.failed.empty()) invariant::write_rejected(options.failed, values, found.rejected);
  report(options, found.invariants.size(), traces);
  if (!options.quiet) note_weak(found.invariants, traces.size());
  return kSame;
}

void check_relations(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (invariant::compat::find_relation(name) != nullptr) continue;
    std::string known;
    for (const auto& relation : invariant::compat::relations()) {
      known += (known.empty() ? "" : ", ") + std::string(relation.name);
    }
    throw Trouble("--relation", name, "is none of " + known);
  }
}

int infer_as_traincheck(const Options& options) {
  check_relations(options.relations);
  invariant::Values values;
  std::vector<invariant::Records> traces = read_traces(options, values);
  auto signatures = read_signatures(options.signatures, options.traces, values);
  for (const auto& trace : traces) signatures.adopt(trace.signatures);
  if (signatures.empty() && !options.quiet) note_no_signatures();
  invariant::compat::InferOptions rules{options.relations, !options.failed.empty(), {}};
  invariant::compat::Inference found;
  {
    Progress progress("inferring", invariant::compat::relations().size(), options.quiet);
    rules.advance = [&progress](std::uint64_t, std::uint64_t) { progress.advance(1); };
    found = invariant::compat::infer(values, signatures, traces, rules);
  }
  if (!options.quiet) note_tolerated(found.tolerated);
  if (found.invariants.empty()) report(options, 0, traces);  // before a file is written
  invariant::write_invariants(options.output, values, found.invariants);
  if (!options.failed.empty()) invariant::write_rejected(options.failed, values, found.rejected);
  report(options, found.invariants.size(), traces);
  return kSame;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-infer", [&]() -> int {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    return options.traincheck_compat ? infer_as_traincheck(options) : infer_invariants(options);
  });
}
