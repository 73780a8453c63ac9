// SPDX-License-Identifier: Apache-2.0
// See verify_steps.hpp.
#include "tools/verify_steps.hpp"

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libttrace/file.hpp"
#include "tools/capture_parts.hpp"
#include "tools/cli.hpp"
#include "tools/shell.hpp"
#include "tools/verify_process.hpp"
#include "tools/verify_progress.hpp"
#include "tools/verify_stamp.hpp"
#include "tools/verify_trace.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLogLines = 15;
constexpr const char* kAgain = ", then start ttrace-verify again: what is done is kept";

fs::path stamp_path(const Step& step) { return fs::path(step.log).replace_extension(".stamp"); }

std::string state_of(const Step& step) {
  return step.kind == StepKind::capture ? trace_state(step.outputs[0]) : files_state(step.outputs);
}

// A run's trace is known by its run; all else is a function of what it was made from.
std::string id_of(const Step& step, const Fingerprint& depends) {
  if (step.kind == StepKind::capture) return run_id_of(step.outputs[0]);
  std::string all;
  for (const auto& [name, hash] : depends) all += name + " " + hash + "\n";
  return hash_of(all);
}

std::string verdict_word(const Step& step, int exit_code) {
  if (step.kind != StepKind::compare) return "";
  return exit_code == kSame ? "same" : exit_code == kDiffer ? "differs" : "no answer";
}

}  // namespace

StepRunner::StepRunner(const VerifyOptions& options, std::size_t count)
    : options_(options), count_(count) {}

Fingerprint StepRunner::fingerprint(const Step& step) const {
  std::error_code error;
  Fingerprint print = step.inputs;
  print["command line"] = hash_of(shell_line(step.words));
  print["working directory"] = fs::current_path(error).string();
  print.merge(program_fingerprint(step.words[0]));
  if (!options_.layout.empty()) print.merge(file_fingerprint(options_.layout));
  if (step.command.empty()) return print;
  print.merge(environment_fingerprint());
  print.merge(command_fingerprint(step.command, options_.output));
  const CaptureParts parts = find_parts();
  print.merge(program_fingerprint(parts.library));
  print.merge(program_fingerprint(parts.writer));
  print.merge(sources_fingerprint(parts.agent, options_.output));
  return print;
}

StepEnd StepRunner::run(const Step& step) {
  steps_.push_back(step);
  ++done_;
  Fingerprint depends = fingerprint(step);
  const std::optional<Stamp> stamp = read_stamp(stamp_path(step));
  std::string reason;
  if (!options_.fresh) {
    reason = !stamp ? "" : first_difference(stamp->depends, depends);
    const bool accepted =
        stamp && (stamp->exit_code == 0 || step.kind != StepKind::capture || options_.keep_going);
    if (accepted && reason.empty() && stamp->output == state_of(step)) {
      StepLine(done_, count_, step.title(), options_.quiet).finish_cached();
      ++cached_;
      return {true, stamp->exit_code, stamp->id};
    }
    if (stamp && reason.empty()) reason = "its output";
  }
  if (options_.verbose && !reason.empty()) {
    note(step.title() + ": runs again, changed: " + reason);
  }
  return execute(step, std::move(depends));
}

StepEnd StepRunner::execute(const Step& step, Fingerprint depends) {
  std::error_code error;
  fs::create_directories(step.log.parent_path(), error);
  fs::remove(stamp_path(step), error);
  for (const fs::path& output : step.outputs) {  // nothing old may be taken for an answer
    fs::remove(step.kind == StepKind::capture ? output / "trace.json" : output, error);
  }
  LoggedCommand command{step.words, step.log, {}, std::chrono::seconds(options_.timeout)};
  if (step.kind == StepKind::compare) command.output = step.outputs[0];

  StepLine line(done_, count_, step.title(), options_.quiet);
  const Ended ended = run_logged(command, signals_, [&line] { line.tick(); });
  line.finish(ended.signal != 0 ? "interrupted" : verdict_word(step, ended.exit_code));
  check(step, ended);

  if (!step.command.empty()) forgive_written(depends, fingerprint(step));
  Stamp stamp{std::move(depends), state_of(step), "", ended.exit_code};
  stamp.id = id_of(step, stamp.depends);
  // No answer may have a reason outside of what is looked at.
  const bool answer = step.kind != StepKind::compare || ended.exit_code != kTrouble;
  if (answer) write_stamp(stamp_path(step), stamp);
  return {false, ended.exit_code, stamp.id};
}

void StepRunner::check(const Step& step, const Ended& ended) const {
  if (ended.signal != 0) {
    throw Interrupted(step.title(), options_.output.string(),
                      "interrupted (" + std::string(strsignal(ended.signal)) +
                          "); start ttrace-verify again to go on, what is done is kept");
  }
  if (ended.timed_out) {
    fail(step, "was ended after " + std::to_string(options_.timeout) +
                   " s; look into the log, or give more with --timeout");
  }
  switch (step.kind) {
    case StepKind::capture:
      check_capture(step, ended.exit_code);
      break;
    case StepKind::pack:
      if (ended.exit_code > kDiffer || state_of(step).empty()) fail(step, "made no pack");
      break;
    case StepKind::compare:
      if (ended.exit_code > kTrouble || state_of(step).empty()) {
        fail(step,
             "ttrace-diff ended with " + std::to_string(ended.exit_code) + " and left no report");
      }
      break;
  }
}

// ttrace-capture's exit code is the command's, or its own; trace.json knows which.
void StepRunner::check_capture(const Step& step, int exit_code) const {
  const fs::path& trace = step.outputs[0];
  const std::optional<int> of_command = command_exit_code(trace);
  if (exit_code == 0 && of_command) return;
  if (!of_command)
    fail(step, "ttrace-capture gave up, the log says why; mend that" + std::string(kAgain));
  if (*of_command == 0) {
    fail(step, "the command ran and nothing was captured; the log has hints");
  }
  const std::string ended = "the command ended with exit code " + std::to_string(*of_command);
  const bool complete = is_complete(trace);
  if (complete && options_.keep_going) {
    note(step.title() + ": " + ended + "; its trace is complete, so --keep-going goes on");
    return;
  }
  fail(step, ended +
                 (complete ? ", though its trace is complete; give --keep-going or mend it"
                           : "; mend it") +
                 kAgain);
}

void StepRunner::fail(const Step& step, const std::string& why) const {
  print_end_of(step.log.string(), kLogLines);
  throw StepFailed(step.title(), step.log.string(), why);
}

}  // namespace ttrace
