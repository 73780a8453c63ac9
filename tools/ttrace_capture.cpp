// SPDX-License-Identifier: Apache-2.0
// ttrace-capture: runs a command and records its tensors.
//   check → prepare the trace directory → run the command → wait for the writers → sum up
// Nothing of the command's behaviour changes: its exit code is ours, signals reach it, and a
// capture that fails never stops it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "tools/capture_child.hpp"
#include "tools/capture_init.hpp"
#include "tools/capture_options.hpp"
#include "tools/capture_parts.hpp"
#include "tools/capture_pth.hpp"
#include "tools/capture_report.hpp"
#include "tools/capture_trace.hpp"
#include "tools/cli.hpp"

namespace {

using namespace ttrace;
namespace fs = std::filesystem;

constexpr const char* kPurpose =
    "Example: ttrace-capture -o run.trace -- torchrun --nproc-per-node 4 train.py --tp 2\n"
    "         ttrace-capture --events -o healthy1.trace -- python3 train.py\n\n"
    "Runs a command and records the tensors of its ranks in a directory. PyTorch programs need no\n"
    "change; C and C++ programs call ttrace.h. Returns the command's exit code, or 2 when that is "
    "0\n"
    "and nothing was captured.";

struct PthOptions {
  std::string install;
  std::string uninstall;
};

void add_options(CLI::App& app, CaptureOptions& options, PthOptions& pth) {
  app.add_option("-o,--output", options.output, "trace directory, new or empty (ttrace-out)")
      ->type_name("DIR");
  app.add_flag("--overwrite", options.overwrite, "delete the trace that is in DIR first");
  app.add_flag("--join", options.join,
               "further node of a run: use the DIR that the first one made");
  app.add_option("--what", options.what,
                 "outputs (default), all (masks, recomputation), stats, hash")
      ->check(CLI::IsMember({"outputs", "all", "stats", "hash"}))
      ->type_name("WHAT");
  app.add_option("--filter", options.filters, "only matching phase/module/slot; !GLOB: not these")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app.add_option("--iterations", options.iterations, "from 0, as 0-2,5 or 10- (0)")
      ->type_name("LIST");
  app.add_option("--ranks", options.ranks, "as 0-3 (all)")->type_name("LIST");
  app.add_option("--comm", options.comm, "also collectives: metadata, hash (of buffers), full")
      ->check(CLI::IsMember({"metadata", "hash", "full"}))
      ->type_name("HOW");
  app.add_option("--init-from", options.init_from, "start weights: a TRACE's, or random by seed:N")
      ->type_name("FROM");
  app.add_option("--layout", options.layout, "how shards are cut, where the program does not say")
      ->type_name("FILE");
  app.add_option("--replay", options.replay,
                 "feed the run with what another computed (ttrace-merge --pack)")
      ->type_name("PACK");
  app.add_option("--perturb", options.perturb, "move each tensor by one unit in the last place")
      ->type_name("SEED");
  app.add_flag("--estimate", options.estimate, "record nothing, print how many bytes it would be");
  app.add_flag("--events", options.events, "record calls and changes of state, for invariants");
  app.add_option("--invariants", options.invariants, "of the events only what this file needs")
      ->type_name("FILE");
  app.add_option("--ring", options.ring, "shared memory a rank (64M)")->type_name("SIZE");
  app.add_option("--install-pth", pth.install, "make PYTHON (python3) capture under -I and -E, too")
      ->type_name("PYTHON")
      ->expected(0, 1)
      ->default_str("python3");
  app.add_option("--uninstall-pth", pth.uninstall, "undo that")
      ->type_name("PYTHON")
      ->expected(0, 1)
      ->default_str("python3");
  app.add_flag("--print-env", options.print_environment, "print exports for other launchers, exit");
  app.add_flag("-q,--quiet", options.quiet, "only problems");
  app.add_flag("-v,--verbose", options.verbose, "also the environment, and all events");
}

int run_pth(const CLI::App& app, const PthOptions& pth) {
  const auto python = [](const std::string& given) { return given.empty() ? "python3" : given; };
  if (app.count("--install-pth") != 0) install_pth(python(pth.install));
  if (app.count("--uninstall-pth") != 0) uninstall_pth(python(pth.uninstall));
  return kSame;
}

// The trace directory with trace.json and, where wanted, the start weights.
Environment prepare(const CaptureOptions& options, const CaptureParts& parts) {
  const fs::path pack = fs::absolute(options.output) / "init.pack";
  const std::string json = options_json(options, pack);  // may find mistakes: before all traces
  const std::string run_id = prepare_trace(options);
  if (!joins(options)) {
    const bool from_trace = json.find("\"kind\":\"pack\"") != std::string::npos;
    if (from_trace) write_init_pack(options.init_from, options.layout, pack, options.quiet);
    write_trace_file(options, run_id, json);
  }
  return capture_environment(options, parts, run_id, json);
}

// --events needs what was compiled against Python's headers.
void check_events_module(const CaptureParts& parts) {
  const fs::path module = parts.library.parent_path() / "_ttrace_events.abi3.so";
  if (fs::exists(module)) return;
  throw Trouble("--events", module.string(),
                "is not there: ttrace was built without Python.h. Install python3-dev and build "
                "it again with -Devents=enabled");
}

int capture(const CaptureOptions& options) {
  const CaptureParts parts = find_parts();
  check_options(options);
  if (options.events) check_events_module(parts);
  const Environment environment = prepare(options, parts);
  if (options.print_environment) {
    std::fputs(export_lines(environment).c_str(), stdout);
    return kSame;
  }
  if (options.verbose) std::fputs(export_lines(environment).c_str(), stderr);

  const SignalGuard signals;
  const int exit_code = run_command(options.command, environment, signals);
  wait_for_writers(options.output, signals);
  if (!joins(options)) finish_trace_file(options, exit_code);
  const std::vector<RankSummary> ranks = read_ranks(options.output);
  print_outcome(options, exit_code, ranks);
  return exit_code == 0 && nothing_captured(options, ranks) ? kTrouble : exit_code;
}

int run(int argc, char** argv) {
  // What follows "--" is the command's, whatever it looks like.
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  CaptureOptions options;
  PthOptions pth;
  if (dashes != end) options.command.assign(dashes + 1, end);
  CLI::App app(kPurpose, "ttrace-capture");
  add_options(app, options, pth);
  if (const auto code = parse_arguments(app, static_cast<int>(dashes - argv), argv)) return *code;
  if (app.count("--install-pth") + app.count("--uninstall-pth") != 0) return run_pth(app, pth);
  if (!options.invariants.empty()) options.events = true;
  read_replay(options, app.count("--iterations") == 0);
  return capture(options);
}

}  // namespace

int main(int argc, char** argv) {
  return ttrace::run_main("ttrace-capture", [&] { return run(argc, argv); });
}
