// SPDX-License-Identifier: Apache-2.0
// See cli.hpp. CLI11's own exit codes (100 to 115) never leave this file.
#include "tools/cli.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <numeric>
#include <vector>

#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

std::string command_name = "ttrace";  // set once, by run_main

void complain(std::string_view text) {
  std::fflush(stdout);
  const std::string line = command_name + ": " + std::string(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Levenshtein distance.
std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replaced = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The long option nearest to `wrong` ("--iteratoin=3"), "" when none is near.
std::string nearest_option(const CLI::App& app, const std::string& wrong) {
  const std::string typed = wrong.substr(0, wrong.find('='));
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, typed.size() / 3) + 1;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::size_t distance = edit_distance(typed, "--" + name);
      if (distance < best_distance) {
        best = "--" + name;
        best_distance = distance;
      }
    }
  }
  return best;
}

// A misspelt option is named first, because CLI11 would rather complain about what then is missing.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string hint = ", try --help";
  for (const std::string& extra : app.remaining(true)) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string nearest = nearest_option(app, extra);
    return "unknown option " + extra + (nearest.empty() ? hint : ", did you mean " + nearest + "?");
  }
  return std::string(error.what()) + hint;
}

}  // namespace

std::string_view version() { return TTRACE_VERSION; }

int run_main(std::string_view name, const std::function<int()>& body) {
  command_name = name;
  std::signal(SIGPIPE, SIG_DFL);  // some parents leave it ignored
  try {
    const int code = body();
    check_mapped_files();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Trouble("write", "standard output", "failed, is the disk full?");
    }
    return code;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return kTrouble;
}

void note(std::string_view text) { complain("note: " + std::string(text)); }

std::optional<int> parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  app.set_version_flag("--version", command_name + " " + std::string(version()));
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help, --version: app.exit prints them
    app.exit(success);
    return kSame;
  } catch (const CLI::ParseError& error) {
    complain(explain(app, error));
    return kTrouble;
  }
}

ColorMode color_mode_from(std::string_view text) {
  if (text == "auto") return ColorMode::automatic;
  if (text == "always") return ColorMode::always;
  if (text == "never") return ColorMode::never;
  throw Trouble("--color", std::string(text), "is none of auto, always, never");
}

bool use_color(ColorMode mode) {
  if (mode != ColorMode::automatic) return mode == ColorMode::always;
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return isatty(STDOUT_FILENO) == 1;
}

Progress::Progress(std::string_view what, std::uint64_t total, bool quiet)
    : what_(what), total_(total), shown_(!quiet && total > 0 && isatty(STDERR_FILENO) == 1) {}

void Progress::advance(std::uint64_t amount) {
  done_ = std::min(done_ + amount, total_);
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);

  constexpr std::size_t kWidth = 30;
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string bar = std::string(filled, '=') + ">" + std::string(kWidth - filled, ' ');
  std::fprintf(stderr, "\r%s [%s] %3.0f %%", what_.c_str(), bar.c_str(), 100 * share);
  std::fflush(stderr);
}

Progress::~Progress() {
  if (shown_ && done_ > 0) std::fputs("\r\033[K", stderr);
}

}  // namespace ttrace
