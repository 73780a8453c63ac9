// SPDX-License-Identifier: Apache-2.0
// ttrace-diff: is the candidate the same training step as the reference, up to round-off?
//   open both → compare (diff/compare.hpp) under limits (tolerance/bound.hpp) → print
// Of two HDF5 files, whoever made them: are they equal (diff/hdf5_compare.hpp)?
#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "diff/compare.hpp"
#include "diff/hdf5_compare.hpp"
#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "tolerance/bound.hpp"
#include "tolerance/own.hpp"
#include "tools/cli.hpp"
#include "tools/diff_modes.hpp"
#include "tools/outputs.hpp"
#include "tools/rules.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-diff reference.trace candidate.trace\n\n"
    "Compares two traces of one training step: matches micro-batches by content, finds how the\n"
    "candidate's tensors are split over its ranks, proves that, compares every tensor under a\n"
    "limit that rounding explains, and names the first module that diverges.\n"
    "Of two HDF5 files it compares all datasets and attributes, path by path: values must be\n"
    "equal, or within --rel, --max-rel and --max-abs.\n"
    "Exit code 0: same; 1: differs; 2: no answer.";

struct Options {
  std::string reference;
  std::string candidate;
  std::string json;
  std::string junit;
  std::string high;
  std::string limits;
  std::optional<double> relative, max_relative, max_absolute;
  std::string bound;  // "": sqrt
  std::string layout;
  std::optional<std::int64_t> iteration;
  std::string filter;
  std::size_t top = 10;
  std::string backend = "auto";
  std::string color = "auto";
  bool no_mmap = false;
  bool trust_hash = true;
  bool quiet = false;
  bool verbose = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("REFERENCE", options.reference, "trace of the trusted run, or an HDF5 file")
      ->required();
  app.add_option("CANDIDATE", options.candidate, "trace of the run in doubt, or an HDF5 file")
      ->required();
  app.add_option("--json", options.json, "also write the report as JSON; -: to stdout, only that")
      ->type_name("FILE");
  app.add_option("--junit", options.junit, "also write it as JUnit's XML; -: to stdout, only that")
      ->type_name("FILE");
  app.add_option("--high", options.high,
                 "REFERENCE is a replay of CANDIDATE: its replay in higher precision")
      ->type_name("TRACE");
  app.add_option("--limits", options.limits, "measured limits, from ttrace-tolerance")
      ->type_name("FILE");
  CLI::Option* bound =
      app.add_option("--bound", options.bound,
                     "how limits grow with depth: sqrt, or theorem as in arXiv 2506.09280 (sqrt)")
          ->check(CLI::IsMember({"sqrt", "theorem"}))
          ->type_name("NAME");
  const CLI::Validator limit(
      [](std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return value >= 0 && value <= 1e300 ? std::string() : text + ": no limit";
      },
      "", "limit");
  app.add_option("--rel", options.relative, "one limit |c - r| / |r| for all floating tensors")
      ->check(limit)
      ->excludes(bound)
      ->type_name("X");
  app.add_option("--max-rel", options.max_relative,
                 "in HDF5 files: the same for each element, as h5diff -p")
      ->check(limit)
      ->type_name("X");
  app.add_option("--max-abs", options.max_absolute,
                 "in HDF5 files: |c - r| of each element, as h5diff -d")
      ->check(limit)
      ->type_name("X");
  app.add_option("--layout", options.layout, "rules that say how tensors are split")
      ->type_name("FILE");
  app.add_option("--iteration", options.iteration, "compare this one (the first both have)")
      ->type_name("N");
  app.add_option("--filter", options.filter,
                 "only keys that match, e.g. '*/forward/*'; paths in HDF5 files")
      ->type_name("GLOB");
  app.add_option("--top", options.top, "how many findings to print (10)")->type_name("N");
  app.add_option("--backend", options.backend, "auto, cpu or cuda (auto)")->type_name("NAME");
  app.add_option("--color", options.color, "auto, always or never (auto)")->type_name("WHEN");
  app.add_flag("--no-mmap", options.no_mmap, "read files instead of mapping them");
  app.add_flag("--trust-hash,!--no-trust-hash", options.trust_hash,
               "take shards of traces with equal hashes for equal, unread (default); or read all");
  app.add_flag("-q,--quiet", options.quiet, "print nothing, only return the exit code");
  app.add_flag("-v,--verbose", options.verbose, "print every tensor and every layout");
}

// A report would take the place of what it is about.
void refuse_to_overwrite(const Options& options) {
  for (const std::string& output : {options.json, options.junit}) {
    for (const std::string& input : {options.reference, options.candidate}) {
      std::error_code error;
      if (output.empty() || !std::filesystem::equivalent(output, input, error)) continue;
      throw Trouble("write", output, "is one of the two that are compared; give another file");
    }
  }
}

// Files, and not the folders that traces are.
bool are_files(const Options& options) {
  std::error_code error;
  return std::filesystem::is_regular_file(options.reference, error) ||
         std::filesystem::is_regular_file(options.candidate, error);
}

OutputPaths paths_of(const Options& options) {
  return {options.json, options.junit, options.quiet};
}

Outputs trouble_outputs(const std::string& message, const Options& options) {
  return {"", are_files(options) ? hdf5_trouble_as_json(message) : trouble_as_json(message),
          trouble_as_junit(message, options.reference, options.candidate)};
}

// What a comparison leaves to be printed.
struct Result {
  int code;
  Outputs outputs;
};

ReadMode read_mode(const Options& options) {
  return options.no_mmap ? ReadMode::no_mmap : ReadMode::automatic;
}

Report run_comparison(const Options& options) {
  if (options.max_relative || options.max_absolute) {
    throw Trouble(options.max_relative ? "--max-rel" : "--max-abs", options.reference,
                  "is for HDF5 files, not for traces");
  }
  const auto backend = choose_backend(options.backend);
  const OpenTraces traces = open_traces(
      {options.reference, options.candidate, options.high, options.limits, read_mode(options)});
  CompareOptions compare_options;
  const bool envelope = traces.limits && !traces.local && !traces.limits->tensors.empty();
  compare_options.every_iteration = traces.local;
  if (traces.limits) {
    compare_options.statistic_limits = widen({}, traces.limits->healthy);
    for (const Trace& run : traces.perturbed) compare_options.noise.push_back(&run);
  }
  compare_options.high = traces.high ? &*traces.high : nullptr;
  compare_options.iteration = options.iteration;
  compare_options.filter = options.filter;
  compare_options.trust_hash = options.trust_hash;
  compare_options.rules = rules_for(options.layout, {&traces.candidate, &traces.reference});
  compare_options.limits = [&](const Alignment& alignment, const Flow& flow) {
    if (options.relative) return bound_limits(alignment, flow, options.relative);
    if (traces.local) return own_limits(alignment, flow);
    if (envelope) return envelope_limits(alignment, flow, *traces.limits);
    const Growth growth = options.bound == "theorem" ? Growth::theorem : Growth::root;
    return bound_limits(alignment, flow, options.relative, growth);
  };
  std::optional<Progress> progress;
  std::uint64_t shown = 0;
  compare_options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) progress.emplace("comparing", total, options.quiet);
    progress->advance(done - shown);
    shown = done;
  };
  return compare(traces.reference, traces.candidate, *backend, compare_options);
}

Result diff_traces(const Options& options, const TextOptions& style) {
  const Report report = run_comparison(options);
  constexpr std::array kCodes = {kSame, kDiffer, kTrouble};
  return {kCodes[static_cast<std::size_t>(report.verdict())],
          {options.quiet ? "" : report_as_text(report, style),
           options.json.empty() ? "" : report_as_json(report),
           options.junit.empty() ? "" : report_as_junit(report)}};
}

Result diff_files(const Options& options, const TextOptions& style) {
  const std::array<std::pair<const char*, bool>, 6> for_traces = {
      {{"--high", !options.high.empty()},
       {"--limits", !options.limits.empty()},
       {"--bound", !options.bound.empty()},
       {"--layout", !options.layout.empty()},
       {"--no-trust-hash", !options.trust_hash},
       {"--iteration", options.iteration.has_value()}}};
  for (const auto& [name, given] : for_traces) {
    if (given) throw Trouble(name, options.reference, "is for traces, not for HDF5 files");
  }
  const auto backend = choose_backend(options.backend);
  const Hdf5Report report =
      compare_hdf5(options.reference, options.candidate, *backend,
                   {{options.relative, options.max_relative, options.max_absolute},
                    options.filter,
                    read_mode(options)});
  return {report.same() ? kSame : kDiffer,
          {options.quiet ? "" : hdf5_report_as_text(report, style),
           options.json.empty() ? "" : hdf5_report_as_json(report),
           options.junit.empty() ? "" : hdf5_report_as_junit(report)}};
}

int run_diff(const Options& options) {
  const ColorMode color = color_mode_from(options.color);
  check_paths(paths_of(options));
  const TextOptions style{options.top, options.verbose, use_color(color)};
  const Result result =
      are_files(options) ? diff_files(options, style) : diff_traces(options, style);
  check_mapped_files();  // before anything that was read is told
  write_outputs(result.outputs, paths_of(options));
  return result.code;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-diff", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    refuse_to_overwrite(options);
    try {
      return run_diff(options);
    } catch (const std::exception& error) {
      write_trouble(trouble_outputs(error.what(), options), paths_of(options));
      throw;
    }
  });
}
