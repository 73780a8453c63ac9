// SPDX-License-Identifier: Apache-2.0
// A step is one program of ttrace's, run once: its output is kept, with a stamp that says what it
// was made from, and it is not run again while that is unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "tools/capture_child.hpp"
#include "tools/verify_fingerprint.hpp"
#include "tools/verify_options.hpp"

namespace ttrace {

// `kind` says when an output is complete and which exit codes are answers.
enum class StepKind : std::uint8_t { capture, pack, compare };

struct Step {
  StepKind kind = StepKind::capture;
  std::string owner;               // "reference", or the candidate's name
  std::string what;                // "capture"
  std::vector<std::string> words;  // the program and its arguments
  std::string command;             // of the user, that the program runs; "" when it runs none
  std::vector<std::filesystem::path> outputs;  // one trace or one pack; text, JSON, XML
  std::filesystem::path log;
  Fingerprint inputs;  // ids of the steps before, files

  [[nodiscard]] std::string title() const { return owner + ": " + what; }
};

struct StepEnd {
  bool cached = false;
  int exit_code = 0;
  std::string id;  // of what was made: equal for equal content only
};

// The step gave no answer. Other candidates go on.
class StepFailed : public Trouble {
 public:
  using Trouble::Trouble;
};

// The user wants all to end.
class Interrupted : public Trouble {
 public:
  using Trouble::Trouble;
};

struct Ended;

class StepRunner {
 public:
  StepRunner(const VerifyOptions& options, std::size_t count);

  // Throws StepFailed and Interrupted, after printing the end of the log.
  StepEnd run(const Step& step);
  // Another number of steps than announced will come.
  void skip(std::size_t count) { done_ += count; }
  [[nodiscard]] std::size_t cached() const { return cached_; }
  // The commands of all steps so far, in order.
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

 private:
  StepEnd execute(const Step& step, Fingerprint depends);
  void check(const Step& step, const Ended& ended) const;
  void check_capture(const Step& step, int exit_code) const;
  [[noreturn]] void fail(const Step& step, const std::string& why) const;
  [[nodiscard]] Fingerprint fingerprint(const Step& step) const;

  const VerifyOptions& options_;
  SignalGuard signals_;
  std::size_t count_;
  std::size_t done_ = 0;
  std::size_t cached_ = 0;
  std::vector<Step> steps_;
};

}  // namespace ttrace
