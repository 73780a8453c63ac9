// SPDX-License-Identifier: Apache-2.0
// Opens the directory of a trace: what is there, whether it is whole, and nothing of its data.
#include "libttrace/trace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "libttrace/core/trouble.hpp"
#include "libttrace/file.hpp"
#include "libttrace/rank_json.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOpening = "cannot open trace";

// The number in "<prefix><digits><suffix>".
template <class Number>
std::optional<Number> number_between(std::string_view text, std::string_view prefix,
                                     std::string_view suffix) {
  if (text.size() <= prefix.size() + suffix.size()) return std::nullopt;
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  if (text.substr(text.size() - suffix.size()) != suffix) return std::nullopt;
  text.remove_prefix(prefix.size());
  text.remove_suffix(suffix.size());
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw system_trouble(kOpening, directory, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

// The kernel reuses process numbers, so the name must be right, too.
bool is_writer(std::int64_t pid) {
  const fs::path comm = "/proc/" + std::to_string(pid) + "/comm";
  if (pid <= 0 || access(comm.c_str(), R_OK) != 0) return false;
  std::array<char, 32> name{};
  const FileDescriptor file = open_file(comm, O_RDONLY);
  const ssize_t size = read(file.get(), name.data(), name.size() - 1);
  return size > 0 && std::string_view(name.data()).substr(0, 13) == "ttrace-writer";
}

[[noreturn]] void refuse_part(const fs::path& part, const std::optional<RankDocument>& rank) {
  std::string why = "its writer died and left it behind; remove it to use the other iterations";
  if (rank && !rank->host.empty() && rank->host != host_name()) {
    why = "it is not closed; wait for the run on host " + rank->host +
          " to end, or, if it has ended, remove this file to use the other iterations";
  } else if (rank && is_writer(rank->writer_pid)) {
    why = "the run is still going on (process " + std::to_string(rank->writer_pid) +
          " writes this file); wait for it to end";
  }
  throw Trouble(kOpening, part.string(), why);
}

RankInfo open_rank(const fs::path& folder, std::int32_t number, const std::string& run_id) {
  std::vector<std::int64_t> iterations;
  std::optional<fs::path> part;
  std::optional<RankDocument> rank;
  for (const std::string& name : names_in(folder)) {
    if (const auto iteration = number_between<std::int64_t>(name, "it", ".h5")) {
      iterations.push_back(*iteration);
    } else if (number_between<std::int64_t>(name, "it", ".h5.part")) {
      part = folder / name;
    } else if (name == "rank.json") {
      rank = parse_rank_json(read_text(folder / name), folder / name);
    }
  }
  if (part) refuse_part(*part, rank);
  const fs::path file = folder / "rank.json";
  if (!rank) throw Trouble(kOpening, file.string(), "it is missing; capture this rank again");
  if (rank->info.rank != number) {
    throw Trouble(kOpening, file.string(),
                  "it is of rank " + std::to_string(rank->info.rank) + "; was its folder renamed?");
  }
  if (!rank->run_id.empty() && !run_id.empty() && rank->run_id != run_id) {
    throw Trouble(kOpening, file.string(),
                  "it is of run " + rank->run_id + ", but trace.json of " + run_id +
                      "; capture each run into its own folder");
  }
  std::sort(iterations.begin(), iterations.end());
  rank->info.iterations = std::move(iterations);
  return rank->info;
}

}  // namespace

class Trace::Impl {
 public:
  fs::path path;
  ReadMode mode = ReadMode::automatic;
  std::string json;
  TraceDocument info;
  std::vector<RankInfo> ranks;
  std::mutex mutex;  // of what follows
  Access access = Access::in_order;
  std::map<std::pair<std::int32_t, std::int64_t>, SegmentReader> segments;
};

Trace::Trace() : impl_(std::make_unique<Impl>()) {}
Trace::~Trace() = default;
Trace::Trace(Trace&&) noexcept = default;

Trace Trace::open(const fs::path& directory, ReadMode mode) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) throw Trouble(kOpening, directory.string(), "no such folder");
  if (!fs::is_directory(status)) {
    throw Trouble(kOpening, directory.string(), "not a folder; give the one that has trace.json");
  }
  const fs::path file = directory / "trace.json";
  if (!fs::exists(file, error)) {
    throw Trouble(kOpening, directory.string(), "it has no trace.json, so it is not a trace");
  }

  Trace trace;
  Impl& impl = *trace.impl_;
  impl.path = directory;
  impl.mode = mode;
  impl.json = read_text(file);
  impl.info = parse_trace_json(impl.json, file);
  for (const std::string& name : names_in(directory)) {
    const auto number = number_between<std::int32_t>(name, "rank", "");
    if (number) impl.ranks.push_back(open_rank(directory / name, *number, impl.info.run_id));
  }
  std::sort(impl.ranks.begin(), impl.ranks.end(),
            [](const RankInfo& left, const RankInfo& right) { return left.rank < right.rank; });
  if (trace.iterations().empty()) {
    for (const std::string& name : names_in(directory)) {
      if (!fs::exists(directory / name / "events.bin", error)) continue;
      throw Trouble(kOpening, directory.string(),
                    "it holds events, no tensors: ttrace-infer and ttrace-check -i read it, and "
                    "ttrace-inspect --traincheck DIR writes them as text");
    }
    throw Trouble(kOpening, directory.string(),
                  "nothing captured: no rank has a segment; look at the output of ttrace-capture");
  }
  return trace;
}

const fs::path& Trace::path() const { return impl_->path; }
const std::string& Trace::run_id() const { return impl_->info.run_id; }
const std::string& Trace::json() const { return impl_->json; }
const std::vector<RankInfo>& Trace::ranks() const { return impl_->ranks; }
bool Trace::wanted(std::int64_t iteration) const {
  return !impl_->info.iterations || contains(*impl_->info.iterations, iteration);
}
bool Trace::logical() const { return impl_->info.logical; }

std::int32_t Trace::world_size() const {
  std::int32_t size = 0;
  for (const RankInfo& rank : impl_->ranks) size = std::max({size, rank.world_size, rank.rank + 1});
  return size;
}

std::vector<std::int64_t> Trace::iterations() const {
  std::set<std::int64_t> all;
  for (const RankInfo& rank : impl_->ranks)
    all.insert(rank.iterations.begin(), rank.iterations.end());
  return {all.begin(), all.end()};
}

const SegmentReader* Trace::segment(std::int32_t rank, std::int64_t iteration) const {
  const auto has =
      std::find_if(impl_->ranks.begin(), impl_->ranks.end(), [&](const RankInfo& info) {
        return info.rank == rank &&
               std::binary_search(info.iterations.begin(), info.iterations.end(), iteration);
      });
  if (has == impl_->ranks.end()) return nullptr;

  const std::lock_guard guard(impl_->mutex);
  const auto open = impl_->segments.find({rank, iteration});
  if (open != impl_->segments.end()) return &open->second;
  SegmentReader reader(segment_path(impl_->path, rank, iteration), impl_->mode);
  const SegmentInfo& info = reader.info();
  const bool same_run = info.run_id.empty() || run_id().empty() || info.run_id == run_id();
  if (info.rank != rank || info.iteration != iteration || !same_run) {
    throw Trouble("cannot read segment", reader.path().string(),
                  "it is of rank " + std::to_string(info.rank) + ", iteration " +
                      std::to_string(info.iteration) + ", run " + info.run_id +
                      "; was it moved or renamed?");
  }
  reader.expect(impl_->access);
  return &impl_->segments.emplace(std::pair(rank, iteration), std::move(reader)).first->second;
}

void Trace::expect(Access access) const {
  const std::lock_guard guard(impl_->mutex);
  impl_->access = access;
  for (const auto& [place, reader] : impl_->segments) reader.expect(access);
}

fs::path segment_path(const fs::path& trace, std::int32_t rank, std::int64_t iteration) {
  return trace / rank_directory_name(rank) / segment_file_name(iteration);
}

}  // namespace ttrace
