// SPDX-License-Identifier: Apache-2.0
// ttrace-check: is a run healthy? Without a reference: by what must hold in any training run.
#include <CLI/CLI.hpp>

#include "libttrace/core/trouble.hpp"
#include "tools/check_builtin.hpp"
#include "tools/check_invariants.hpp"
#include "tools/cli.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-capture --iterations 0-1 -o run.trace -- torchrun ... train.py\n"
    "         ttrace-check run.trace\n\n"
    "Checks one trace without a reference: replicas agree, the update is the optimizer's, ranks\n"
    "get the samples that they should, and more; --list names all. Two iterations in a row show\n"
    "most. Exit code 0: passed; 1: violated; 2: trouble, or nothing could be checked.";

struct Options {
  BuiltinOptions builtin;
  CheckInvariantsOptions learned;
  bool list = false;
};

void add_options(CLI::App& app, Options& options) {
  BuiltinOptions& builtin = options.builtin;
  app.add_option("TRACE", builtin.trace, "folder that ttrace-capture wrote");
  app.add_option("--check", builtin.checks, "only these (all); may be given several times")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--list", options.list, "list the checks and what they ask");
  app.add_option("--json", builtin.json, "also write the report as JSON; -: to stdout, only that")
      ->type_name("FILE");
  app.add_option("--junit", builtin.junit, "also write it as JUnit's XML; -: to stdout, only that")
      ->type_name("FILE");
  app.add_option("--top", builtin.top, "how many violations of each check to print (5)")
      ->type_name("N");
  app.add_flag("-q,--quiet", builtin.quiet, "print nothing, only return the exit code");
  CheckInvariantsOptions& learned = options.learned;
  const std::string group = "With invariants that were learned";
  app.add_option("-i,--invariants", learned.invariants,
                 "check these, of ttrace-infer or traincheck-infer, instead")
      ->type_name("FILE...")
      ->group(group);
  app.add_option("--signatures", learned.signatures,
                 "parameters of the functions (signatures.json in the trace's folder)")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--traincheck-compat", learned.traincheck_compat,
               "exactly as TrainCheck 0.2.0 checks, its faults included")
      ->group(group);
  app.add_flag("--follow", learned.follow,
               "check while the run goes on: violations are printed as they come")
      ->group(group);
  app.add_option(
         "--idle", learned.idle_seconds,
         "with --follow: the run is over when nothing came for so long (30), or says so itself")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("-o,--output", learned.output,
                 "also write TrainCheck's files of results into this folder")
      ->type_name("DIR")
      ->group(group);
}

// Options that would be without effect.
void refuse_unused(const Options& options) {
  const CheckInvariantsOptions& learned = options.learned;
  const bool has_file = !learned.invariants.empty();
  if (has_file && !options.builtin.checks.empty()) {
    throw Trouble("--check", options.builtin.checks[0], "names built-in checks; leave out -i");
  }
  const std::pair<const char*, bool> of_file[] = {
      {"--follow", learned.follow},
      {"--output", !learned.output.empty()},
      {"--signatures", !learned.signatures.empty()},
      {"--traincheck-compat", learned.traincheck_compat}};
  for (const auto& [name, given] : of_file) {
    if (given && !has_file) throw Trouble(name, options.builtin.trace, "needs -i FILE");
  }
}

int learned(Options& options) {
  options.learned.trace = options.builtin.trace;
  options.learned.json = options.builtin.json;
  options.learned.junit = options.builtin.junit;
  options.learned.top = options.builtin.top;
  options.learned.quiet = options.builtin.quiet;
  return check_invariants(options.learned);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-check", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    if (options.list) {
      list_builtin();
      return kSame;
    }
    if (options.builtin.trace.empty()) {
      throw Trouble("arguments", "TRACE", "is missing, try --help");
    }
    refuse_unused(options);
    return options.learned.invariants.empty() ? check_builtin(options.builtin) : learned(options);
  });
}
