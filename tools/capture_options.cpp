// SPDX-License-Identifier: Apache-2.0
// See capture_options.hpp.
#include "tools/capture_options.hpp"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "libttrace/core/intervals.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/pack.hpp"
#include "tools/shell.hpp"

namespace ttrace {

using nlohmann::json;

namespace {

constexpr std::string_view kSeedPrefix = "seed:";
// execve refuses a longer variable.
constexpr std::size_t kLongestVariable = std::size_t{120} << 10;
constexpr std::int64_t kMostRanks = 1 << 20;

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_seed(const std::string& init_from) { return init_from.rfind(kSeedPrefix, 0) == 0; }

std::optional<std::uint64_t> seed_of(const std::string& init_from) {
  return number_of<std::uint64_t>(std::string_view(init_from).substr(kSeedPrefix.size()));
}

// "64M", "1G", "65536".
std::optional<std::uint64_t> ring_bytes(std::string_view text) {
  std::uint64_t unit = 1;
  constexpr std::string_view kUnits = "KMG";
  if (!text.empty() && kUnits.find(text.back()) != std::string_view::npos) {
    unit = std::uint64_t{1} << (10 * (kUnits.find(text.back()) + 1));
    text.remove_suffix(1);
  }
  const auto number = number_of<std::uint64_t>(text);
  if (!number || *number == 0 || *number > (std::uint64_t{1} << 40) / unit) return std::nullopt;
  return *number * unit;
}

Intervals intervals_of(const std::string& option, const std::string& text) {
  const auto intervals = parse_intervals(text);
  if (!intervals) throw Trouble(option, text, "is no list of numbers, write it as 0-2,5");
  return *intervals;
}

json intervals_json(const Intervals& intervals) {
  json list = json::array();
  for (const auto& [first, last] : intervals) {
    list.push_back({first, last == kEndless ? json(nullptr) : json(last)});
  }
  return list;
}

json ranks_json(const std::string& text) {
  if (text.empty()) return nullptr;
  json list = json::array();
  for (const auto& [first, last] : intervals_of("--ranks", text)) {
    for (std::int64_t rank = first; rank <= last; ++rank) list.push_back(rank);
  }
  return list;
}

json layout_rules_json(const std::string& path) {
  json list = json::array();
  if (path.empty()) return list;
  for (const LayoutRule& rule : read_layout_rules(path)) {
    Layout dims = rule.layout;
    dims.global_shape.reset();
    json entry = {{"pattern", rule.pattern}, {"dims", to_string(dims)}};
    if (rule.layout.global_shape) entry["shape"] = *rule.layout.global_shape;
    list.push_back(std::move(entry));
  }
  return list;
}

json init_json(const CaptureOptions& options, const std::filesystem::path& init_pack) {
  if (options.init_from.empty()) return nullptr;
  if (is_seed(options.init_from)) return {{"kind", "seed"}, {"seed", *seed_of(options.init_from)}};
  return {{"kind", "pack"}, {"path", init_pack.string()}, {"trace", options.init_from}};
}

json replay_json(const CaptureOptions& options) {
  if (options.replay.empty()) return nullptr;
  const json pack = json::parse(options.replay_json);
  return {{"pack", std::filesystem::absolute(options.replay).string()},
          {"source", pack.value("source", "")},
          {"run_id", pack.value("run_id", "")}};
}

// For programs on the C interface; the agent reads TTRACE_OPTIONS.
std::string filter_lines(const std::vector<std::string>& filters) {
  std::string lines;
  for (const std::string& filter : filters) lines += filter + "\n";
  return lines;
}

// Behind what the user preloads: a sanitizer's runtime wants to be first.
std::string preloaded(const std::string& library) {
  const char* others = std::getenv("LD_PRELOAD");
  if (others == nullptr || *others == '\0') return library;
  const std::string list = others;
  return list.find(library) != std::string::npos ? list : list + ":" + library;
}

}  // namespace

namespace {

// --events records no tensors, so what chooses or sets them has no meaning.
void check_events(const CaptureOptions& options) {
  if (!options.events) return;
  const std::pair<const char*, bool> others[] = {{"--what", options.what != "outputs"},
                                                 {"--filter", !options.filters.empty()},
                                                 {"--iterations", options.iterations != "0"},
                                                 {"--init-from", !options.init_from.empty()},
                                                 {"--layout", !options.layout.empty()},
                                                 {"--replay", !options.replay.empty()},
                                                 {"--perturb", options.perturb.has_value()},
                                                 {"--estimate", options.estimate},
                                                 {"--comm", !options.comm.empty()}};
  for (const auto& [name, given] : others) {
    if (given) {
      throw Trouble("arguments", std::string(name) + " and --events",
                    "exclude each other: --events records calls instead of tensors");
    }
  }
  if (options.invariants.empty()) return;
  std::ifstream file(options.invariants);
  std::string line;
  while (std::getline(file, line)) {
    const json found = json::parse(line, nullptr, false);
    if (found.is_object() && found.contains("relation")) return;
  }
  throw Trouble(
      "--invariants", options.invariants,
      file.is_open() ? "holds no invariant, make it with ttrace-infer" : "cannot be read");
}

}  // namespace

void read_replay(CaptureOptions& options, bool all_iterations) {
  if (options.replay.empty()) return;
  options.replay_json = PackReader(options.replay).replay();
  const json replay = json::parse(options.replay_json, nullptr, false);
  if (!replay.is_object() || !replay.contains("microbatches")) {
    throw Trouble("--replay", options.replay,
                  "is no pack for a replay, make it with ttrace-merge --pack --like REFERENCE");
  }
  if (!all_iterations) return;
  options.iterations.clear();
  for (const auto& [iteration, numbers] : replay.at("microbatches").items()) {
    options.iterations += (options.iterations.empty() ? "" : ",") + iteration;
  }
}

void check_options(const CaptureOptions& options) {
  check_events(options);
  if (!options.replay.empty() && options.perturb) {
    throw Trouble("arguments", "--replay and --perturb", "exclude each other");
  }
  (void)intervals_of("--iterations", options.iterations);
  if (!options.ranks.empty()) {
    for (const auto& [first, last] : intervals_of("--ranks", options.ranks)) {
      if (last >= kMostRanks)
        throw Trouble("--ranks", options.ranks, "has ranks that cannot exist");
    }
  }
  if (!ring_bytes(options.ring))
    throw Trouble("--ring", options.ring, "is no size, write it as 64M");
  if (is_seed(options.init_from) && !seed_of(options.init_from)) {
    throw Trouble("--init-from", options.init_from, "has no number, write it as seed:1");
  }
  std::error_code error;
  if (std::filesystem::equivalent(options.init_from, options.output, error)) {
    throw Trouble("--init-from", options.init_from, "is also the output, choose another");
  }
  if (options.command.empty() && !options.print_environment) {
    throw Trouble("no command", "command line", "put it after --, as in: -- python3 train.py");
  }
}

std::string options_json(const CaptureOptions& options, const std::filesystem::path& init_pack) {
  const json members = {
      {"what", options.what},
      {"filters", options.filters},
      {"iterations", intervals_json(intervals_of("--iterations", options.iterations))},
      {"ranks", ranks_json(options.ranks)},
      {"estimate", options.estimate},
      {"init", init_json(options, init_pack)},
      {"replay", replay_json(options)},
      {"events", options.events},
      {"invariants", options.invariants},
      {"comm", options.comm.empty() ? json(nullptr) : json(options.comm)},
      {"perturb", options.perturb ? json(*options.perturb) : json(nullptr)},
      {"layout_rules", layout_rules_json(options.layout)}};
  std::string text = members.dump();
  if (text.size() > kLongestVariable) {
    throw Trouble("options", "environment", "are longer than 120 KiB, use fewer layout rules");
  }
  return text;
}

Environment capture_environment(const CaptureOptions& options, const CaptureParts& parts,
                                const std::string& run_id, const std::string& options_text) {
  const char* python_path = std::getenv("PYTHONPATH");
  const bool chained = python_path != nullptr && *python_path != '\0';
  const std::string agent = parts.agent.string();
  Environment environment = {
      {"TTRACE_OUT", std::filesystem::absolute(options.output).string()},
      {"TTRACE_RUN_ID", run_id},
      {"TTRACE_WRITER", parts.writer.string()},
      {"TTRACE_LIB", parts.library.string()},
      {"TTRACE_AGENT", agent},
      {"TTRACE_RING", std::to_string(*ring_bytes(options.ring))},
      {"TTRACE_ITERATIONS", options.iterations},
      {"TTRACE_RANKS", options.ranks},
      {"TTRACE_ESTIMATE", options.estimate ? "1" : ""},
      {"TTRACE_FILTERS", filter_lines(options.filters)},
      {"TTRACE_WHAT", options.what},
      {"TTRACE_OPTIONS", options_text},
      {"TTRACE_COMM", options.comm},
      {"TTRACE_EVENTS", options.events ? "1" : ""},
      {"TTRACE_INVARIANTS",
       options.invariants.empty() ? "" : std::filesystem::absolute(options.invariants)},
      {"TTRACE_REPLAY", options.replay.empty() ? "" : std::filesystem::absolute(options.replay)},
      {"PYTHONPATH", chained ? agent + ":" + python_path : agent}};
  if (!options.comm.empty() && !parts.nccl.empty()) {
    environment.emplace_back("LD_PRELOAD", preloaded(parts.nccl.string()));
  }
  return environment;
}

std::string export_lines(const Environment& environment) {
  std::string lines;
  for (const auto& [name, value] : environment) {
    lines += "export " + name + "=" + single_quoted(value) + "\n";
  }
  return lines;
}

}  // namespace ttrace
