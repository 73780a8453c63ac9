// SPDX-License-Identifier: Apache-2.0
// ttrace-merge: the shards of a trace as logical tensors, each proved or listed with the reason.
//   open → for each iteration: decide layouts → place → prove → write → print the proof table
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>

#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"
#include "tools/merge_output.hpp"
#include "tools/merge_pack.hpp"
#include "tools/merge_proof.hpp"
#include "tools/rules.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-merge run.trace --like reference.trace -o merged.trace\n\n"
    "Puts the shards of a trace together to logical tensors, and proves it: each element exactly\n"
    "once, copies bit-equal, no sum pending. What cannot be proved is listed and left out. "
    "Without\n"
    "a reference only declared layouts merge (see docs/layouts.md). Collective calls belong to\n"
    "ranks and are left out: ttrace-check and ttrace-inspect --collectives read them in TRACE.\n"
    "Exit code 0: all proved; 1: something is not; 2: trouble.";

struct Options {
  std::string trace;
  std::string like;
  std::string reshard_like;
  std::string layout;
  std::optional<std::int64_t> iteration;
  std::string output;
  bool check = false;
  bool pack = false;
  bool quiet = false;
  bool verbose = false;
  std::size_t top = 20;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("TRACE", options.trace, "folder that ttrace-capture wrote")->required();
  app.add_option("-o,--output", options.output, "folder for the merged trace, new or empty")
      ->type_name("OUT");
  app.add_flag("--check", options.check, "write nothing, only prove");
  app.add_flag("--pack", options.pack,
               "write OUT as one file for ttrace-capture --replay; needs --like");
  app.add_option("--reshard-like", options.reshard_like,
                 "with --pack: for the run in doubt itself, whose trace this is, cut as it cuts")
      ->type_name("CANDIDATE");
  app.add_option("--like", options.like, "trace of a trusted run: its content tells the layouts")
      ->type_name("REFERENCE");
  app.add_option("--layout", options.layout, "rules that override what the program declared")
      ->type_name("FILE");
  app.add_option("--iteration", options.iteration, "only this one (all)")->type_name("N");
  app.add_option("--top", options.top, "how many problems to print (20)")->type_name("N");
  app.add_flag("-q,--quiet", options.quiet, "print nothing, only return the exit code");
  app.add_flag("-v,--verbose", options.verbose, "print the layout of each tensor");
}

// A merge that is interrupted must clean up, so signals are noticed between blocks.
volatile std::sig_atomic_t interrupted = 0;

void interrupt(int /*signal*/) { interrupted = 1; }

// Also by a file that shrinks while it is merged.
void throw_when_interrupted() {
  check_mapped_files();
  if (interrupted != 0) throw Trouble("merge", "interrupted", "nothing was written");
}

struct PhaseProof {
  std::uint64_t keys = 0;
  std::uint64_t proved = 0;
  std::uint64_t assumed = 0;
  std::uint64_t problems = 0;
};

struct Proof {
  std::array<PhaseProof, kPhaseCount> phases;
  std::vector<Finding> problems;

  void add(const MergedIteration& merged) {
    for (const auto& [key, tensor] : merged.tensors) {
      PhaseProof& phase = phases.at(static_cast<std::size_t>(key.phase));
      const auto decision = merged.decisions.find(key);
      ++phase.keys;
      phase.proved += tensor.proved() ? 1 : 0;
      phase.assumed += decision != merged.decisions.end() && decision->second.assumed ? 1 : 0;
    }
    add(merged.problems);
  }

  void add(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (finding.key.module.empty()) continue;  // of no single key
      ++phases.at(static_cast<std::size_t>(finding.key.phase)).problems;
    }
    problems.insert(problems.end(), findings.begin(), findings.end());
  }
};

void print_layouts(const MergedIteration& merged) {
  for (const auto& [key, tensor] : merged.tensors) {
    const auto decision = merged.decisions.find(key);
    if (decision == merged.decisions.end()) continue;
    std::string shape;
    for (const std::uint64_t extent : tensor.shape) {
      shape += (shape.empty() ? "" : "x") + std::to_string(extent);
    }
    std::printf("%s  %s  %s%s  (%s)\n", to_string(key).c_str(),
                shape.empty() ? "scalar" : shape.c_str(),
                decision->second.known ? to_string(tensor.layout).c_str() : "unknown",
                decision->second.assumed ? "  assumed" : "", decision->second.reason.c_str());
  }
}

void print_table(const Proof& proof) {
  std::printf("%-10s %8s %8s %8s %8s\n", "phase", "keys", "proved", "assumed", "problems");
  for (std::size_t i = 0; i < proof.phases.size(); ++i) {
    const PhaseProof& phase = proof.phases[i];
    if (phase.keys == 0 && phase.problems == 0) continue;
    std::printf(
        "%-10s %8llu %8llu %8llu %8llu\n", std::string(name_of(static_cast<Phase>(i))).c_str(),
        static_cast<unsigned long long>(phase.keys), static_cast<unsigned long long>(phase.proved),
        static_cast<unsigned long long>(phase.assumed),
        static_cast<unsigned long long>(phase.problems));
  }
}

void print_problems(const Proof& proof, std::size_t top) {
  if (proof.problems.empty()) return;
  std::printf("\n%zu problem%s:\n", proof.problems.size(), proof.problems.size() == 1 ? "" : "s");
  const std::size_t shown = std::min(top, proof.problems.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Finding& problem = proof.problems[i];
    std::string line = std::string(name_of(problem.kind)) + ": ";
    if (!problem.key.module.empty()) line += to_string(problem.key) + ": ";
    line += problem.message;
    for (const auto& [name, value] : problem.evidence) {
      if (problem.message.find(value) == std::string::npos) line += "; " + name + " " + value;
    }
    std::printf("  %s\n", line.c_str());
  }
  if (shown == proof.problems.size()) return;
  std::printf("  and %zu more, --top %zu lists them\n", proof.problems.size() - shown,
              proof.problems.size());
}

std::vector<std::int64_t> iterations_to_merge(const Trace& trace, const Options& options) {
  const std::vector<std::int64_t> all = trace.iterations();
  if (!options.iteration) return all;
  if (std::find(all.begin(), all.end(), *options.iteration) == all.end()) {
    throw Trouble("--iteration", std::to_string(*options.iteration),
                  options.trace + " has iterations " + std::to_string(all.front()) + " to " +
                      std::to_string(all.back()));
  }
  return {*options.iteration};
}

std::uint64_t bytes_of(const LogicalTensors& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : tensors) {
    if (tensor.proved()) bytes += element_count(tensor.shape) * size_of(tensor.dtype);
  }
  return bytes;
}

// Iterations that both have: what is fed to a run must have its counterpart there.
std::vector<std::int64_t> common_iterations(const Trace& trace, const Trace& like,
                                            const Options& options) {
  const std::vector<std::int64_t> theirs = like.iterations();
  std::vector<std::int64_t> common;
  for (const std::int64_t iteration : iterations_to_merge(trace, options)) {
    if (std::count(theirs.begin(), theirs.end(), iteration) != 0) common.push_back(iteration);
  }
  if (common.empty()) {
    throw Trouble("pack", like.path().string(), "has no iteration in common with " + options.trace);
  }
  return common;
}

int run_pack(const Options& options) {
  if (options.like.empty() == options.reshard_like.empty()) {
    throw Trouble("arguments", "--pack",
                  "needs --like or --reshard-like, a trace of the run that it is for");
  }
  const std::string& target = options.like.empty() ? options.reshard_like : options.like;
  const Trace trace = Trace::open(options.trace);
  const Trace like = Trace::open(target);
  PackRequest request{
      &trace, &like,         options.like.empty(), common_iterations(trace, like, options),
      {},     options.output};
  request.rules = rules_for(options.layout, {&trace});
  std::optional<Progress> progress;
  std::uint64_t shown = 0;
  const PackedTrace packed =
      write_replay_pack(request, [&](std::uint64_t done, std::uint64_t total) {
        throw_when_interrupted();
        if (!progress) progress.emplace("packing", total, options.quiet);
        progress->advance(done - shown);
        shown = done;
      });
  progress.reset();
  Proof proof;
  proof.add(packed.problems);
  if (!options.quiet) {
    print_problems(proof, options.top);
    std::printf("wrote %s: %llu tensors, %llu bytes\n", options.output.c_str(),
                static_cast<unsigned long long>(packed.tensors),
                static_cast<unsigned long long>(packed.bytes));
  }
  return packed.problems.empty() ? kSame : kDiffer;
}

// Without a reference ranks of other inputs are taken to work on other micro-batches.
void note_lone_microbatches(const Trace& trace, std::int64_t iteration) {
  std::map<std::int32_t, std::size_t> seen;  // by how many ranks
  for (const auto& [turn, number] : number_microbatches(trace, iteration)) ++seen[number];
  const auto lone =
      std::count_if(seen.begin(), seen.end(), [](const auto& entry) { return entry.second == 1; });
  if (trace.ranks().size() < 2 || lone < 2) return;
  note(std::to_string(lone) +
       " micro-batches were seen on one rank each and taken as whole; they " +
       "may be parts of fewer: --like REFERENCE tells");
}

// Calls are of ranks, of which a merged trace has none.
void note_collectives(const Trace& trace, const std::vector<std::int64_t>& iterations) {
  std::size_t calls = 0;
  for (const RankInfo& rank : trace.ranks()) {
    for (const std::int64_t iteration : iterations) {
      const SegmentReader* segment = trace.segment(rank.rank, iteration);
      if (segment != nullptr) calls += segment->collectives().size();
    }
  }
  if (calls == 0) return;
  const std::string path = trace.path().string();
  note(std::to_string(calls) +
       (calls == 1 ? " collective call of a rank is" : " collective calls of the ranks are") +
       " left out, and what went in and came out; they are read where they are: ttrace-check " +
       path + ", ttrace-inspect " + path + " --collectives");
}

int run_merge(const Options& options) {
  const Trace trace = Trace::open(options.trace);
  std::optional<Trace> like;
  if (!options.like.empty()) like.emplace(Trace::open(options.like));
  const std::vector<LayoutRule> rules = rules_for(options.layout, {&trace});
  const std::vector<std::int64_t> iterations = iterations_to_merge(trace, options);
  std::optional<LogicalTraceWriter> writer;
  if (!options.check) writer.emplace(trace, options.output);

  if (!like && !options.quiet) note_lone_microbatches(trace, iterations.front());
  Proof proof;
  proof.add(missing_ranks(trace));
  for (const std::int64_t iteration : iterations) {
    throw_when_interrupted();
    const MergedIteration merged =
        merge_iteration(trace, like ? &*like : nullptr, iteration, rules);
    proof.add(merged);
    if (options.verbose && !options.quiet) print_layouts(merged);
    if (!writer) continue;
    Progress progress("merging iteration " + std::to_string(iteration), bytes_of(merged.tensors),
                      options.quiet);
    proof.add(writer->write(iteration, merged.tensors, [&progress](std::uint64_t bytes) {
      throw_when_interrupted();
      progress.advance(bytes);
    }));
  }
  if (!options.quiet) {
    print_table(proof);
    print_problems(proof, options.top);
    std::fflush(stdout);
  }
  throw_when_interrupted();
  if (writer) {
    writer->finish();
    if (!options.quiet) {
      note_collectives(trace, iterations);
      std::printf("\nwrote %s: %llu tensors, %llu bytes\n", options.output.c_str(),
                  static_cast<unsigned long long>(writer->tensors()),
                  static_cast<unsigned long long>(writer->bytes()));
    }
  }
  return proof.problems.empty() ? kSame : kDiffer;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-merge", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    if (options.check == options.output.empty()) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, interrupt);
      if (!options.pack && !options.reshard_like.empty()) {
        throw Trouble("arguments", "--reshard-like", "needs --pack");
      }
      return options.pack ? run_pack(options) : run_merge(options);
    }
    throw Trouble("arguments", options.check ? "--check" : "-o OUT",
                  options.check ? "writes nothing, leave out -o" : "is missing, try --help");
  });
}
