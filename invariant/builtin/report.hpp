// SPDX-License-Identifier: Apache-2.0
// Runs checks on a trace, and what is to be told of them: text, JSON, JUnit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "invariant/builtin/check.hpp"

namespace ttrace {
class Trace;
}

namespace ttrace::builtin {

enum class Verdict : std::uint8_t { passed, violated, not_checked };
[[nodiscard]] std::string_view name_of(Verdict verdict);

struct CheckResult {
  std::string name;
  std::string asks;
  Verdict verdict = Verdict::not_checked;
  Outcome outcome;
};

struct CheckReport {
  std::string trace;
  std::string ends_early;  // how the run ended, where it did not end well
  std::vector<std::int64_t> iterations;
  std::vector<CheckResult> results;
  // Violated when one check is; not_checked when no check compared anything.
  [[nodiscard]] Verdict verdict() const;
};

// `wanted`: names; empty: all. Throws Trouble for a name that is none. `advance` is called once for
// each check and iteration.
[[nodiscard]] CheckReport run_checks(const Trace& trace, const std::vector<std::string>& wanted,
                                     const std::function<void()>& advance);
[[nodiscard]] std::size_t count_checks(const std::vector<std::string>& wanted);

[[nodiscard]] std::string as_text(const CheckReport& report, std::size_t top);
[[nodiscard]] std::string as_json(const CheckReport& report);   // docs/report.md
[[nodiscard]] std::string as_junit(const CheckReport& report);  // docs/report.md
// Where there is no report.
[[nodiscard]] std::string trouble_as_json(const std::string& message, const std::string& trace);
[[nodiscard]] std::string trouble_as_junit(const std::string& message, const std::string& trace);

}  // namespace ttrace::builtin
