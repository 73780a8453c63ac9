// SPDX-License-Identifier: Apache-2.0
// What all commands share: exit codes, the one place that catches, argument errors, colour,
// progress. A main is `return run_main("ttrace-x", [&] { ... });`: the function in it returns kSame
// or kDiffer, and throws for everything else.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace ttrace {

inline constexpr int kSame = 0;     // same, passed, all proved
inline constexpr int kDiffer = 1;   // differs, violated, not all could be proved
inline constexpr int kTrouble = 2;  // no answer: unreadable input, unknown option, full disk

[[nodiscard]] std::string_view version();

// Runs `body` and returns its exit code. Exceptions are printed as "<name>: <what>" on stderr, and
// so is a stdout that could not be written; both give kTrouble. A closed pipe ends the process
// quietly.
[[nodiscard]] int run_main(std::string_view name, const std::function<int()>& body);

// "ttrace-x: note: <text>" on stderr, with the name given to run_main.
void note(std::string_view text);

// Parses and adds --version. nullopt: go on; else the exit code, everything already printed: kSame
// after --help and --version, kTrouble after a mistake, with the nearest option as a suggestion.
[[nodiscard]] std::optional<int> parse_arguments(CLI::App& app, int argc, const char* const* argv);

enum class ColorMode : std::uint8_t { automatic, always, never };
// Throws Trouble for anything but auto, always, never.
[[nodiscard]] ColorMode color_mode_from(std::string_view text);
// automatic: when stdout is a terminal, TERM is not "dumb" and NO_COLOR is unset or empty.
[[nodiscard]] bool use_color(ColorMode mode);

// "merging [=====>     ] 45 %" on stderr, at most ten times a second; nothing at all when stderr is
// no terminal or `quiet`. The line is erased at the end.
class Progress {
 public:
  Progress(std::string_view what, std::uint64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(std::uint64_t amount);

 private:
  std::string what_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool shown_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace ttrace
