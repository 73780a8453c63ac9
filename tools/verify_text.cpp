// SPDX-License-Identifier: Apache-2.0
// See verify_text.hpp.
#include "tools/verify_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

namespace ttrace {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string verdict_word(Verdict verdict, bool color) {
  const char* word = verdict == Verdict::same      ? "same"
                     : verdict == Verdict::differs ? "differs"
                                                   : "cannot tell";
  if (!color) return word;
  return std::string(verdict == Verdict::same ? "\033[1;32m" : "\033[1;31m") + word + "\033[0m";
}

// Each tensor has its own limit.
std::string limits_of(const Comparison& comparison) {
  if (comparison.largest_limit == 0) return "equal";
  return number(comparison.smallest_limit) + " .. " + number(comparison.largest_limit);
}

std::string coverage_of(const Comparison& comparison) {
  return std::to_string(comparison.compared) + " of " + std::to_string(comparison.expected) +
         " tensors compared, " +
         (comparison.largest_limit == 0
              ? "all equal"
              : "each within its limit (relative, " + limits_of(comparison) + ")");
}

constexpr const char* kLocally = "Each module alone, fed with the candidate's own tensors";
constexpr const char* kEndToEnd = "The whole run, end to end";

std::string sentence(const char* how, const Comparison& comparison) {
  const std::string start = std::string(how) + ": ";
  switch (comparison.verdict) {
    case Verdict::same:
      return start + "same, " + coverage_of(comparison) + ".";
    case Verdict::differs:
      return start + "differs, first in " + comparison.place() + ".";
    case Verdict::trouble:
      return start + "no answer, " + comparison.message + ".";
  }
  return "";
}

std::string found(const CandidateResult& result) {
  if (!result.decided_locally()) {
    return ". Found in the whole run, end to end. " + sentence(kLocally, result.local);
  }
  const char* introduced = result.local.structural() ? "" : ": it was introduced there";
  return ". Found with each module alone, fed with the candidate's own tensors" +
         std::string(introduced) + ". " + sentence(kEndToEnd, result.end_to_end);
}

std::string paragraph(const CandidateResult& result, bool color) {
  const Comparison& decisive = result.decisive();
  std::string text = verdict_word(result.verdict(), color) + ": ";
  switch (result.verdict()) {
    case Verdict::same:
      text += result.name + " computes what the reference computes, up to round-off. " +
              sentence(kLocally, result.local) + " " + sentence(kEndToEnd, result.end_to_end);
      break;
    case Verdict::differs:
      text += decisive.structural() ? result.name + ": " + decisive.message
                                    : "the first module of " + result.name + " that diverges is " +
                                          decisive.place() + ": " + decisive.message;
      text += found(result);
      break;
    case Verdict::trouble:
      // Failed steps say whose they are.
      if (decisive.message.rfind(result.name + ": ", 0) != 0) text += result.name + ": ";
      text += decisive.message;
      if (result.local.message != result.end_to_end.message) {
        const bool local = result.decided_locally();
        text +=
            ". " + sentence(local ? kEndToEnd : kLocally, local ? result.end_to_end : result.local);
      }
  }
  return text + "\n";
}

std::string advice(const VerifyRun& run, const VerifyOptions& options) {
  std::string text;
  const bool answered = std::any_of(
      run.candidates.begin(), run.candidates.end(),
      [](const CandidateResult& result) { return result.verdict() != Verdict::trouble; });
  if (answered && options.reference_high.empty()) {
    text +=
        "Own precision only: give --reference-high for paired noise, which tells rounding from "
        "a small bug\nwhere a module is not bit-equal.\n";
  }
  if (!run.low_precision.empty()) {
    text += "The reference computes in " + run.low_precision +
            ": verify a float32 run of both first. Its rounding is " +
            (run.low_precision == "bfloat16" ? "65,536" : "8,192") +
            " times finer,\nso nothing but a bug of the low precision itself can hide in it.\n";
  }
  if (run.cached > 0) {
    text += std::to_string(run.cached) + (run.cached == 1 ? " step was" : " steps were") +
            " cached (--fresh runs all again).\n";
  }
  return text;
}

// What ttrace-diff advises after a weak verdict is what was done here.
std::string without_advice(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  bool advising = false;
  for (std::string line; std::getline(lines, line);) {
    const bool goes_on = advising && line.rfind("  ", 0) == 0;
    advising = goes_on || line.rfind("for a sharp verdict: ", 0) == 0;
    if (!advising) kept += line + "\n";
  }
  return kept;
}

std::string section(const std::string& title, const Comparison& comparison) {
  if (comparison.text.empty()) return "";
  return "\n--- " + title + " ---\n" + without_advice(comparison.text);
}

// The report of the mode that decided comes first and in full.
std::string reports(const CandidateResult& result, bool all) {
  std::string local = section("each module alone", result.local);
  std::string whole = section("end to end", result.end_to_end);
  if (!result.decided_locally()) return whole + local;
  const bool both = all || result.end_to_end.verdict != Verdict::same;
  return local + (both ? whole : "");
}

std::string commands_of(const CandidateResult& result, const VerifyOptions& options) {
  std::string text = "\n--- commands (" + (options.output / "commands.sh").string() + ") ---\n";
  for (const std::string& command : result.commands) text += command + "\n";
  return text;
}

using Row = std::array<std::string, 6>;

Row row_of(const CandidateResult& result) {
  const Comparison& decisive = result.decisive();
  const bool differs = result.verdict() == Verdict::differs;
  std::string first = "-";
  if (differs && decisive.structural()) first = decisive.message;
  if (differs && !decisive.structural()) {
    first =
        decisive.module + " " + decisive.phase + (decisive.slot.empty() ? "" : " " + decisive.slot);
  }
  const bool answer = result.verdict() != Verdict::trouble;
  return {result.name,
          verdict_word(result.verdict(), false),
          first,
          !differs                   ? "-"
          : result.decided_locally() ? "module alone"
                                     : "end to end",
          answer && decisive.score > 0 ? number(decisive.score) : "-",
          answer ? limits_of(decisive) : "-"};
}

}  // namespace

std::string candidate_as_text(const CandidateResult& result, const VerifyRun& run,
                              const VerifyOptions& options, bool color) {
  return paragraph(result, color) + advice(run, options) + reports(result, options.verbose) +
         commands_of(result, options);
}

std::string table_as_text(const VerifyRun& run, const VerifyOptions& options, bool color) {
  std::vector<Row> rows = {
      {"candidate", "verdict", "first difference", "found", "score", "limits"}};
  for (const CandidateResult& result : run.candidates) rows.push_back(row_of(result));
  Row blank;
  std::array<std::size_t, blank.size()> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      std::string cell = rows[r][i] + std::string(widths[i] - rows[r][i].size() + 2, ' ');
      if (i == 1 && r > 0) {
        const std::string word = verdict_word(run.candidates[r - 1].verdict(), color);
        cell.replace(0, rows[r][i].size(), word);
      }
      line += cell;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const CandidateResult& result : run.candidates) {
    if (result.verdict() == Verdict::trouble) text += "\n" + paragraph(result, color);
  }
  text +=
      "\nscore: error / limit of the first difference, or the largest there is. limits: the "
      "smallest "
      "and the largest,\nrelative; a larger error would have been found. Each report is in " +
      (options.output / "NAME/report.txt").string() + ",\nall commands are in " +
      (options.output / "commands.sh").string() + ".\n" + advice(run, options);
  return text;
}

}  // namespace ttrace
