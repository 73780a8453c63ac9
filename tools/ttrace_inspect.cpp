// SPDX-License-Identifier: Apache-2.0
// ttrace-inspect: what a trace holds, one tensor's statistics, one tensor as a NumPy file.
#include <CLI/CLI.hpp>
#include <optional>

#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"
#include "tools/inspect_collectives.hpp"
#include "tools/inspect_events.hpp"
#include "tools/inspect_get.hpp"
#include "tools/inspect_list.hpp"
#include "tools/rules.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-inspect run.trace --phase forward --module '*.mlp'\n\n"
    "Shows what a trace holds. With KEY: that tensor on each rank. With --get: the tensor as a "
    "file\n"
    "that numpy.load reads, whole if its layout is declared or one rank has it, else a rank's "
    "shard.\n"
    "Exit code 0, or 2 when there is no answer.";

struct Options {
  std::string trace;
  std::string key;
  std::string get;
  std::string output;
  std::string layout;
  InspectFilter filter;
  std::string traincheck;
  bool list = false;
  bool collectives = false;
  bool json = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("TRACE", options.trace, "folder that ttrace-capture wrote")->required();
  app.add_option("KEY", options.key, "show this tensor, e.g. it0/mb0/forward/head/output.0");
  app.add_option("--rank", options.filter.rank, "only this rank")->type_name("N");
  app.add_option("--phase", options.filter.phase, "param, forward, recompute, backward, grad, step")
      ->type_name("P");
  app.add_option("--module", options.filter.module, "only modules that match")->type_name("GLOB");
  app.add_option("--iteration", options.filter.iteration, "only this one (all)")->type_name("N");
  app.add_flag("--list", options.list, "list all tensors, not only those that options choose");
  app.add_flag("--collectives", options.collectives,
               "list the collective calls (ttrace-capture --comm)");
  app.add_option("--get", options.get, "write this tensor to the file of -o")->type_name("KEY");
  app.add_option("-o,--output", options.output, "NumPy file to write")->type_name("FILE");
  app.add_option("--layout", options.layout, "rules that say how tensors are split")
      ->type_name("FILE");
  app.add_option("--traincheck", options.traincheck, "write the events as files of TrainCheck")
      ->type_name("DIR");
  app.add_flag("--json", options.json, "print JSON");
}

Key key_from(const std::string& text) {
  const std::optional<Key> key = parse_key(text);
  if (key) return *key;
  throw Trouble("KEY", text, "is no key; they look like it0/mb1/forward/decoder.layers.3/output.0");
}

int run_inspect(const Options& options) {
  if (!options.traincheck.empty()) {
    export_to_traincheck(options.trace, options.traincheck);
    return kSame;
  }
  const Trace trace = Trace::open(options.trace);
  if (options.collectives) {
    print_collectives(trace, options.filter, options.json);
    return kSame;
  }
  if (!options.get.empty()) {
    if (options.output.empty()) throw Trouble("--get", options.get, "needs -o FILE");
    const auto rules = rules_for(options.layout, {&trace});
    get_tensor(trace, key_from(options.get), options.filter.rank, rules, options.output);
    return kSame;
  }
  if (!options.key.empty()) {
    print_tensor(trace, key_from(options.key), options.filter.rank, options.json);
  } else {
    print_contents(trace, options.filter, options.list || !options.filter.empty(), options.json);
  }
  return kSame;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-inspect", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    return run_inspect(options);
  });
}
