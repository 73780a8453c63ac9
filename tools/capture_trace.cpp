// SPDX-License-Identifier: Apache-2.0
// See capture_trace.hpp.
#include "tools/capture_trace.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "libttrace/core/process_watch.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"
#include "tools/cli.hpp"

namespace ttrace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kJoinPatience{60};
constexpr std::chrono::seconds kWriterPatience{60};  // without a byte of progress
constexpr std::chrono::seconds kSayAfter{2};

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

bool is_rank_directory(const fs::path& path) {
  return path.filename().string().rfind("rank", 0) == 0 && fs::is_directory(path);
}

bool is_events_file(const fs::path& path) {
  return path.extension() == ".bin" && path.filename().string().rfind("events.", 0) == 0;
}

// ---- before ----

bool writer_lives(const RankSummary& rank) {
  return rank.writer && rank.host == host_name() && !ProcessWatch(*rank.writer).dead();
}

// The parts of a trace. Throws Trouble when there is anything else: only traces are ever deleted.
std::vector<fs::path> parts_of(const fs::path& trace) {
  std::vector<fs::path> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(trace)) {
    const std::string name = entry.path().filename().string();
    const bool ours =
        name == "trace.json" || name == "init.pack" || is_rank_directory(entry.path());
    if (!ours) throw Trouble("output", trace.string(), "has " + name + ", which is of no trace");
    parts.push_back(entry.path());
  }
  return parts;
}

// A run that ended before any rank captured something: nobody wants to keep it.
bool holds_nothing(const fs::path& trace, const std::vector<fs::path>& parts) {
  return read_json(trace / "trace.json").contains("finished") &&
         std::none_of(parts.begin(), parts.end(), is_rank_directory);
}

void remove_old_trace(const fs::path& trace, const CaptureOptions& options) {
  const std::vector<fs::path> parts = parts_of(trace);
  if (!parts.empty() && !options.overwrite && !holds_nothing(trace, parts)) {
    throw Trouble("output", trace.string(), "holds a trace, choose another or give --overwrite");
  }
  for (const RankSummary& rank : read_ranks(trace)) {
    if (writer_lives(rank)) {
      throw Trouble("--overwrite", trace.string(),
                    "is still being written by process " + std::to_string(*rank.writer));
    }
  }
  for (const fs::path& part : parts) fs::remove_all(part);
}

std::string join_trace(const fs::path& trace) {
  const auto end = Clock::now() + kJoinPatience;
  while (Clock::now() < end) {
    const json found = read_json(trace / "trace.json");
    if (found.is_object() && !found.contains("finished")) return found.value("run_id", "");
    std::this_thread::sleep_for(milliseconds(100));
  }
  throw Trouble("join", trace.string(),
                "no first process made a new trace there, is the directory shared by all nodes?");
}

std::string new_run_id() {
  const char* given = std::getenv("TTRACE_RUN_ID");
  return given != nullptr && *given != '\0' ? std::string(given) : make_run_id();
}

}  // namespace

bool joins(const CaptureOptions& options) {
  if (options.join) return true;
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return std::atoi(value) > 0;
  }
  return false;
}

std::string prepare_trace(const CaptureOptions& options) {
  const fs::path& trace = options.output;
  if (joins(options)) return join_trace(trace);
  std::error_code error;
  fs::create_directories(trace, error);
  if (!fs::is_directory(trace)) {
    throw Trouble("create", trace.string(),
                  (error ? error.message() : "is no directory") + ", choose another with -o");
  }
  remove_old_trace(trace, options);
  return new_run_id();
}

void write_trace_file(const CaptureOptions& options, const std::string& run_id,
                      const std::string& options_text) {
  json described = json::parse(options_text);
  described["init_from"] = options.init_from;
  const json file = {{"format", "ttrace-trace"},
                     {"version", 1},
                     {"run_id", run_id},
                     {"command", options.command},
                     {"started", utc_now()},
                     {"options", std::move(described)},
                     {"versions", {{"ttrace", version()}}}};
  replace_file(options.output / "trace.json",
               file.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

void finish_trace_file(const CaptureOptions& options, int exit_code) {
  json file = read_json(options.output / "trace.json");
  if (!file.is_object()) {
    throw Trouble("read", (options.output / "trace.json").string(), "the traced run removed it");
  }
  file["finished"] = utc_now();
  file["exit_code"] = exit_code;
  replace_file(options.output / "trace.json", file.dump(1) + "\n");
}

// ---- after ----

namespace {

RankSummary summary_of(const fs::path& directory) {
  RankSummary rank;
  const json file = read_json(directory / "rank.json");
  if (!file.is_object()) return rank;
  rank.rank = file.value("rank", 0);
  rank.host = file.value("host", "");
  if (file.contains("writer_pid")) rank.writer = file["writer_pid"].get<pid_t>();
  rank.records = file.value("records", std::uint64_t{0});
  rank.collectives = file.value("collectives", std::uint64_t{0});
  rank.bytes = file.value("bytes", std::uint64_t{0});
  rank.lost = file.value("lost", std::uint64_t{0});
  rank.fed = file.value("fed", std::uint64_t{0});
  rank.degraded = file.value("degraded", false);
  for (const json& event : file.value("events", json::array())) {
    rank.events.push_back(event.value("what", "") + ": " + event.value("where", "") + ": " +
                          event.value("why", ""));
  }
  const json estimate = file.value("estimate_bytes", json::object());
  for (const auto& [phase, bytes] : estimate.items()) {
    if (bytes.is_number()) rank.estimate[phase] = bytes.get<std::uint64_t>();
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".h5") ++rank.segments;
    if (is_events_file(entry.path())) rank.event_bytes += entry.file_size();
  }
  return rank;
}

// What grows while writers work.
std::uint64_t size_on_disk(const fs::path& trace) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(trace, error)) {
    const std::uint64_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (!error) bytes += size;
  }
  return bytes;
}

std::vector<RankSummary> living_writers(const fs::path& trace) {
  std::vector<RankSummary> ranks = read_ranks(trace);
  const auto gone = [](const RankSummary& rank) { return !writer_lives(rank); };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), gone), ranks.end());
  return ranks;
}

std::string list_of(const std::vector<RankSummary>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i].rank);
  }
  return text + (ranks.size() > 8 ? ", ..." : "");
}

}  // namespace

std::vector<RankSummary> read_ranks(const fs::path& trace) {
  std::vector<RankSummary> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator(trace)) {
    if (is_rank_directory(entry.path()) && fs::exists(entry.path() / "rank.json")) {
      ranks.push_back(summary_of(entry.path()));
    }
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& left, const auto& right) { return left.rank < right.rank; });
  return ranks;
}

void wait_for_writers(const fs::path& trace, const SignalGuard& signals) {
  auto progress = Clock::now();
  auto say = Clock::now() + kSayAfter;
  std::uint64_t size = 0;
  milliseconds pause{2};
  for (auto living = living_writers(trace); !living.empty(); living = living_writers(trace)) {
    const auto now = Clock::now();
    if (now >= say) {
      note("waiting for the writers of " + list_of(living));
      say = now + 10 * kSayAfter;
    }
    if (const std::uint64_t size_now = size_on_disk(trace); size_now != size) {
      size = size_now;
      progress = now;
    }
    siginfo_t info{};
    const int signal = signals.wait(pause, info);
    const bool interrupted = signal != 0 && signal != SIGCHLD;
    if (interrupted || now - progress > kWriterPatience) {
      note("not waiting any longer for the writers of " + list_of(living) +
           (interrupted ? "" : ", is their program still running?"));
      return;
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {  // orphans, when we are process 1
    }
    pause = std::min(pause * 2, milliseconds(200));
  }
}

}  // namespace ttrace
