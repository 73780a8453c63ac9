// SPDX-License-Identifier: Apache-2.0
// See capture_report.hpp.
#include "tools/capture_report.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>

#include "libttrace/core/key.hpp"
#include "tools/cli.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kMostEvents = 5;  // of a rank; -v shows all

std::string human(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string counted(std::uint64_t count, const std::string& noun) {
  const std::string ending = noun.back() == 's' ? "es" : "s";
  return std::to_string(count) + " " + noun + (count == 1 ? "" : ending);
}

template <class Member>
std::uint64_t sum(const std::vector<RankSummary>& ranks, Member member) {
  return std::accumulate(
      ranks.begin(), ranks.end(), std::uint64_t{0},
      [member](std::uint64_t total, const RankSummary& rank) { return total + rank.*member; });
}

void print_estimate(const std::vector<RankSummary>& ranks) {
  std::map<std::string, std::uint64_t> phases;
  std::uint64_t total = 0;
  std::uint64_t largest = 0;
  for (const RankSummary& rank : ranks) {
    std::uint64_t of_rank = 0;
    for (const auto& [phase, bytes] : rank.estimate) {
      phases[phase] += bytes;
      of_rank += bytes;
    }
    total += of_rank;
    largest = std::max(largest, of_rank);
  }
  std::printf("%-12s %12s\n", "phase", "bytes");
  for (std::uint8_t code = 0; code < kPhaseCount; ++code) {
    const std::string phase(name_of(static_cast<Phase>(code)));
    if (phases.count(phase) != 0) {
      std::printf("%-12s %12s\n", phase.c_str(), human(phases[phase]).c_str());
    }
  }
  std::printf("%-12s %12s   (%s, at most %s each)\n", "all", human(total).c_str(),
              counted(ranks.size(), "rank").c_str(), human(largest).c_str());
}

void print_missing(const CaptureOptions& options, const std::vector<RankSummary>& ranks) {
  for (const RankSummary& rank : ranks) {
    const std::string name = "rank " + std::to_string(rank.rank) + ": ";
    if (rank.writer) note(name + "its writer did not finish, the trace is incomplete");
    if (rank.lost != 0) note(name + counted(rank.lost, "record") + " did not reach the disk");
    const std::size_t shown =
        options.verbose ? rank.events.size() : std::min(rank.events.size(), kMostEvents);
    if (!options.replay.empty() && rank.fed == 0) {
      note(name + "--replay: not one tensor of the pack met one of this run");
      note("  Is this the command of the reference, and does the pack have its iterations?");
      note("  Does a C or C++ program call ttrace_feed of ttrace.h?");
    }
    for (std::size_t i = 0; i < shown; ++i) note(name + rank.events[i]);
    if (shown < rank.events.size()) {
      note(name + counted(rank.events.size() - shown, "more event") + ", see rank.json or use -v");
    }
  }
}

void print_hints(const CaptureOptions& options, const std::vector<RankSummary>& ranks) {
  const std::string start = "nothing was captured in " + options.output.string() + ": ";
  if (ranks.empty()) {
    note(start + "no process opened the trace. Does the command");
    note("  run a Python that ignores PYTHONPATH (python -I, -E, -S, env -i)? See --install-pth");
    note("  pass its environment on (mpirun -x, srun --export)? See --print-env");
    note("  import torch, or call ttrace_open of ttrace.h, at all?");
    if (options.iterations != "0") {
      note("  run as far as --iterations " + options.iterations + " (from 0)?");
    }
    return;
  }
  note(start + counted(ranks.size(), "process") + " opened the trace and recorded no tensor. Did");
  note("  the run reach an iteration of --iterations " + options.iterations + " (from 0)?");
  if (!options.filters.empty()) note("  a module match --filter? It sees phase/module/slot");
  if (!options.ranks.empty()) note("  a rank of --ranks " + options.ranks + " exist?");
  note("  it call a model at all?");
}

}  // namespace

bool nothing_captured(const CaptureOptions& options, const std::vector<RankSummary>& ranks) {
  return std::none_of(ranks.begin(), ranks.end(), [&](const RankSummary& rank) {
    if (options.events) return rank.event_bytes != 0;
    if (options.estimate) return !rank.estimate.empty();
    return rank.records + rank.collectives != 0 && rank.segments != 0;
  });
}

void print_outcome(const CaptureOptions& options, int exit_code,
                   const std::vector<RankSummary>& ranks) {
  print_missing(options, ranks);
  if (nothing_captured(options, ranks)) {
    // Of a command that failed, its own words say more.
    if (exit_code == 0) print_hints(options, ranks);
    if (exit_code != 0) note("nothing was captured in " + options.output.string());
    return;
  }
  if (options.estimate) {
    print_estimate(ranks);
    return;
  }
  if (options.quiet) return;
  if (options.events) {
    note(options.output.string() + ": events of " + counted(ranks.size(), "rank") + ", " +
         human(sum(ranks, &RankSummary::event_bytes)));
    return;
  }
  const std::uint64_t collectives = sum(ranks, &RankSummary::collectives);
  note(options.output.string() + ": " + counted(ranks.size(), "rank") + ", " +
       counted(sum(ranks, &RankSummary::segments), "segment") + ", " +
       counted(sum(ranks, &RankSummary::records), "record") + ", " +
       (collectives != 0 ? counted(collectives, "collective") + ", " : "") +
       human(sum(ranks, &RankSummary::bytes)));
}

}  // namespace ttrace
