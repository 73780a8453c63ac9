// SPDX-License-Identifier: Apache-2.0
// ttrace-diff: is the candidate the same training step as the reference, up to round-off?
//   open both → compare (diff/compare.hpp) under limits (tolerance/bound.hpp) → print
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>

#include "diff/compare.hpp"
#include "libttrace/core/trouble.hpp"
#include "tolerance/bound.hpp"
#include "tools/cli.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-diff reference.trace candidate.trace\n\n"
    "Compares two traces of one training step: matches micro-batches by content, finds how the\n"
    "candidate's tensors are split over its ranks, proves that, compares every tensor under a\n"
    "limit that rounding explains, and names the first module that diverges.\n"
    "Exit code 0: same; 1: differs; 2: no answer.";

struct Options {
  std::string reference;
  std::string candidate;
  std::string json;
  std::optional<double> relative;
  std::string layout;
  std::optional<std::int64_t> iteration;
  std::string filter;
  std::size_t top = 10;
  std::string backend = "auto";
  std::string color = "auto";
  bool quiet = false;
  bool verbose = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("REFERENCE", options.reference, "trace of the trusted run")->required();
  app.add_option("CANDIDATE", options.candidate, "trace of the run in doubt")->required();
  app.add_option("--json", options.json, "also write the report as JSON; -: to stdout, only that")
      ->type_name("FILE");
  app.add_option("--rel", options.relative, "one relative limit for all floating tensors")
      ->check(CLI::Validator(
          [](std::string& text) {
            const double limit = std::strtod(text.c_str(), nullptr);
            return limit >= 0 && limit <= 1e300 ? std::string() : text + ": no relative limit";
          },
          "", "limit"))
      ->type_name("X");
  app.add_option("--layout", options.layout, "rules that say how tensors are split")
      ->type_name("FILE");
  app.add_option("--iteration", options.iteration, "compare this one (the first both have)")
      ->type_name("N");
  app.add_option("--filter", options.filter, "only keys that match, e.g. '*/forward/*'")
      ->type_name("GLOB");
  app.add_option("--top", options.top, "how many findings to print (10)")->type_name("N");
  app.add_option("--backend", options.backend, "auto, cpu or cuda (auto)")->type_name("NAME");
  app.add_option("--color", options.color, "auto, always or never (auto)")->type_name("WHEN");
  app.add_flag("-q,--quiet", options.quiet, "print nothing, only return the exit code");
  app.add_flag("-v,--verbose", options.verbose, "print every tensor and every layout");
}

void write_json(const std::string& text, const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Trouble("write", path, "failed; is there such a folder, and space in it?");
}

Report run_comparison(const Options& options) {
  const auto backend = choose_backend(options.backend);
  const Trace reference = Trace::open(options.reference);
  const Trace candidate = Trace::open(options.candidate);
  CompareOptions compare_options;
  compare_options.iteration = options.iteration;
  compare_options.filter = options.filter;
  if (!options.layout.empty()) compare_options.rules = read_layout_rules(options.layout);
  compare_options.limits = [&options](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, options.relative);
  };
  std::optional<Progress> progress;
  std::uint64_t shown = 0;
  compare_options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) progress.emplace("comparing", total, options.quiet);
    progress->advance(done - shown);
    shown = done;
  };
  return compare(reference, candidate, *backend, compare_options);
}

int run_diff(const Options& options) {
  const ColorMode color = color_mode_from(options.color);
  const Report report = run_comparison(options);
  write_json(options.json.empty() ? "" : report_as_json(report), options.json);
  if (!options.quiet && options.json != "-") {
    const std::string text =
        report_as_text(report, {options.top, options.verbose, use_color(color)});
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  constexpr std::array kCodes = {kSame, kDiffer, kTrouble};
  return kCodes[static_cast<std::size_t>(report.verdict())];
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-diff", [&] {
    CLI::App app(kPurpose);
    Options options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    try {
      return run_diff(options);
    } catch (const std::exception& error) {
      // Whoever asked for JSON gets a document, whatever happens.
      if (!options.json.empty()) write_json(trouble_as_json(error.what()), options.json);
      throw;
    }
  });
}
