// SPDX-License-Identifier: Apache-2.0
// ttrace-verify: the whole method in one command.
//   capture the reference → for each candidate: capture → compare end to end → pack its tensors →
//   replay them in the reference (and in high precision) → compare each module → report
// Each arrow is a sibling program (verify_plan.hpp); what is unchanged is not run again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"
#include "tools/fed.hpp"
#include "tools/shell.hpp"
#include "tools/verify_documents.hpp"
#include "tools/verify_folder.hpp"
#include "tools/verify_options.hpp"
#include "tools/verify_plan.hpp"
#include "tools/verify_steps.hpp"
#include "tools/verify_text.hpp"
#include "tools/verify_trace.hpp"

namespace {

using namespace ttrace;

constexpr const char* kPurpose =
    "Example: ttrace-verify --reference 'python3 train.py' \\\n"
    "                       --candidate 'torchrun --nproc-per-node 2 train.py --tp 2'\n\n"
    "Does the candidate train as the reference does, up to round-off? Captures both, feeds the\n"
    "reference with the candidate's tensors to judge each module alone, compares, and names the\n"
    "first module that diverges. The reference runs 1 + candidates times (it should save "
    "nothing).\n"
    "What is unchanged is not run again: command, environment, its files, Python files beside "
    "them\n"
    "and in PYTHONPATH, names of packages. Changed data and checkpoints are not seen: --fresh.\n"
    "Exit code 0: all are the same; 1: one differs; 2: a step failed, no answer.";

void add_options(CLI::App& app, VerifyOptions& options) {
  const auto once = [](CLI::Option* option, const char* type) { return option->type_name(type); };
  const auto many = [](CLI::Option* option, const char* type) {
    return option->type_name(type)->allow_extra_args(false);
  };
  once(app.add_option("--reference", options.reference, "the trusted run, as a shell reads it"),
       "CMD")
      ->required();
  many(app.add_option("--candidate", options.candidates, "the run in doubt; may be repeated"),
       "CMD")
      ->required();
  once(app.add_option("--reference-high", options.reference_high,
                      "the reference in higher precision: noise is then measured in pairs"),
       "CMD");
  many(app.add_option("--name", options.names, "of a candidate, in the order of these"), "NAME");
  once(app.add_option("-o,--output", options.output, "folder of results (ttrace-verify-out)"),
       "DIR");
  once(app.add_option("--iterations", options.iterations, "from 0, as 0-2,5 (0)"), "LIST");
  app.add_flag("--no-init-from", options.own_weights,
               "do not give the candidate the reference's start weights");
  once(app.add_option("--layout", options.layout, "how shards are cut (docs/layouts.md)"), "FILE");
  once(app.add_option("--json", options.json, "also write JSON; -: to stdout, only that"), "FILE");
  once(app.add_option("--junit", options.junit, "also write JUnit's XML; -: to stdout, only that"),
       "FILE");
  once(app.add_option("--top", options.top, "how many findings to print (10)"), "N");
  once(app.add_option("--timeout", options.timeout, "end a command after that (never)"), "SECONDS");
  app.add_flag("--fresh", options.fresh, "run every step again");
  app.add_flag("--keep-going", options.keep_going,
               "a command that fails with a complete trace will do");
  app.add_flag("-q,--quiet", options.quiet, "print nothing, only return the exit code");
  app.add_flag("-v,--verbose", options.verbose, "print every tensor, and why steps run again");
}

std::vector<std::string> commands_since(const StepRunner& runner, std::size_t first) {
  std::vector<std::string> commands;
  for (std::size_t i = first; i < runner.steps().size(); ++i) {
    commands.push_back(shell_line(runner.steps()[i].words));
  }
  return commands;
}

class Verification {
 public:
  explicit Verification(const VerifyOptions& options)
      : options_(options), plan_(options), runner_(options, plan_.steps()) {}

  const VerifyRun& run() {
    try {
      reference_ = runner_.run(plan_.reference()).id;
      run_.low_precision = low_precision_of(plan_.reference_trace());
      run_.reference_commands = commands_since(runner_, 0);
      for (std::size_t i = 0; i < options_.candidates.size(); ++i) {
        run_.candidates.push_back(candidate(i));
      }
    } catch (const Trouble& trouble) {
      run_.trouble = trouble.what();
      finish();
      throw;
    }
    finish();
    return run_;
  }
  [[nodiscard]] const VerifyRun& result() const { return run_; }

 private:
  void finish() {
    run_.cached = runner_.cached();
    write_file(options_.output / "commands.sh",
               steps_as_script(runner_.steps(), options_.keep_going));
    for (const CandidateResult& result : run_.candidates) {
      write_file(result.folder / "report.txt", candidate_as_text(result, run_, options_, false));
      write_file(result.folder / "report.json", candidate_as_json(result));
      write_file(result.folder / "report.xml", candidate_as_junit(result));
    }
  }

  CandidateResult candidate(std::size_t index) {
    const std::size_t first = runner_.steps().size();
    CandidateResult result;
    result.name = options_.names[index];
    result.folder = plan_.folder(index);
    try {
      const std::string id = runner_.run(plan_.candidate(index, reference_)).id;
      result.end_to_end = compare(plan_.end_to_end(index, reference_, id));
      result.local = locally(index, id);
    } catch (const StepFailed& failure) {
      note(failure.what());
      result.end_to_end = result.local = no_comparison(failure.what());
    }
    runner_.skip(1 + plan_.steps_after_capture() - (runner_.steps().size() - first));
    result.commands = run_.reference_commands;
    const std::vector<std::string> own = commands_since(runner_, first);
    result.commands.insert(result.commands.end(), own.begin(), own.end());
    return result;
  }

  Comparison compare(const Step& step) {
    (void)runner_.run(step);
    return read_comparison(step.outputs);
  }

  // What the replay cannot be made of may still differ end to end, so a failure ends only this.
  Comparison locally(std::size_t index, const std::string& candidate_id) {
    try {
      const std::string pack = runner_.run(plan_.pack(index, reference_, candidate_id)).id;
      const std::string own = runner_.run(plan_.replay(index, false, pack)).id;
      if (unfed_rank(Trace::open(plan_.folder(index) / "own.trace"))) {
        return not_applicable(
            "this command was fed with nothing (a C or C++ program must call ttrace_feed of "
            "ttrace.h), so the limits are those of a run end to end, which are weak");
      }
      std::string high;
      if (!options_.reference_high.empty()) high = runner_.run(plan_.replay(index, true, pack)).id;
      return compare(plan_.local(index, candidate_id, own, high));
    } catch (const StepFailed& failure) {
      note(failure.what());
      return no_comparison(failure.what());
    }
  }

  const VerifyOptions& options_;
  VerifyPlan plan_;
  StepRunner runner_;
  VerifyRun run_;
  std::string reference_;  // its id
};

// Files first: a document on stdout cannot be taken back when writing a file fails.
void write_documents(const VerifyRun& run, const VerifyOptions& options) {
  for (const bool to_stdout : {false, true}) {
    if ((options.json == "-") == to_stdout && !options.json.empty()) {
      write_document(options.json, run_as_json(run));
    }
    if ((options.junit == "-") == to_stdout && !options.junit.empty()) {
      write_document(options.junit, run_as_junit(run));
    }
  }
}

int exit_code_of(const VerifyRun& run) {
  int code = kSame;
  for (const CandidateResult& result : run.candidates) {
    code = std::max(code, result.verdict() == Verdict::trouble   ? kTrouble
                          : result.verdict() == Verdict::differs ? kDiffer
                                                                 : kSame);
  }
  return code;
}

int verify(VerifyOptions& options) {
  check_options(options);
  const VerifyFolder folder(options.output);
  unsetenv("TTRACE_RUN_ID");  // each run has its own
  Verification verification(options);
  try {
    verification.run();
  } catch (const Trouble&) {
    write_documents(verification.result(), options);
    throw;
  }
  const VerifyRun& run = verification.result();
  write_documents(run, options);
  if (!options.quiet && options.json != "-" && options.junit != "-") {
    const bool color = use_color(ColorMode::automatic);
    const std::string text = run.candidates.size() == 1
                                 ? candidate_as_text(run.candidates[0], run, options, color)
                                 : table_as_text(run, options, color);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return exit_code_of(run);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("ttrace-verify", [&] {
    CLI::App app(kPurpose);
    VerifyOptions options;
    add_options(app, options);
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    return verify(options);
  });
}
