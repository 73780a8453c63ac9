// SPDX-License-Identifier: Apache-2.0
// Times the steps of merging, each alone, for bench/merge.sh. Prints "NAME SECONDS" lines and, at
// the end, "peak MIB".
//   merge_time plan TRACE              group, decide by declarations, place and prove
//   merge_time infer TRACE REFERENCE   decide by content
//   merge_time read TRACE              a plain loop over the files
//   merge_time merge TRACE             all tensors, as logical ones, in blocks of 8 MiB
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"

using namespace ttrace;

namespace {

constexpr std::size_t kBlock = std::size_t{8} << 20;

class Stopwatch {
 public:
  void lap(const char* name) {
    const auto now = std::chrono::steady_clock::now();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    std::printf("%s %.3f cpu %.3f peak %ld\n", name,
                std::chrono::duration<double>(now - start_).count(), cpu - cpu_,
                usage.ru_maxrss / 1024);
    cpu_ = cpu;
    start_ = std::chrono::steady_clock::now();
  }

 private:
  static double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double cpu_ = 0;
};

void open_all(const Trace& trace) {
  for (const RankInfo& rank : trace.ranks()) (void)trace.segment(rank.rank, 0);
}

LogicalTensors plan(const Trace& trace, Stopwatch& watch) {
  const MicrobatchNumbers numbers = number_microbatches(trace, 0);
  watch.lap("number");
  const ShardGroups groups = group_shards(trace, 0, numbers);
  watch.lap("group");
  const LayoutDecisions decisions = declared_layouts(groups, {});
  watch.lap("decide");
  LogicalTensors tensors = place_all(groups, decisions);
  watch.lap("place_and_prove");
  return tensors;
}

void run_plan(const Trace& trace, Stopwatch& watch) {
  std::size_t proved = 0;
  const LogicalTensors tensors = plan(trace, watch);
  for (const auto& [key, tensor] : tensors) proved += tensor.proved() ? 1 : 0;
  std::printf("tensors %zu\nproved %zu\n", tensors.size(), proved);
}

void run_infer(const Trace& trace, const Trace& reference, Stopwatch& watch) {
  const MicrobatchMatch match = match_microbatches(reference, trace, 0, 0);
  watch.lap("match");
  const ShardGroups theirs = group_shards(reference, 0, match.reference);
  const LogicalTensors known = place_all(theirs, declared_layouts(theirs, {}));
  const ShardGroups groups = group_shards(trace, 0, match.candidate);
  watch.lap("group_both");
  const Inference inference = infer_layouts(known, groups, {});
  watch.lap("infer");
  std::size_t decided = 0;
  for (const auto& [key, decision] : inference.decisions) decided += decision.known ? 1 : 0;
  std::printf("tensors %zu\nknown %zu\nfindings %zu\n", groups.size(), decided,
              inference.findings.size());
}

void run_read(const Trace& trace, Stopwatch& watch) {
  std::vector<std::byte> block(kBlock);
  std::uint64_t bytes = 0;
  for (const RankInfo& rank : trace.ranks()) {
    const int file = open(segment_path(trace.path(), rank.rank, 0).c_str(), O_RDONLY | O_CLOEXEC);
    for (ssize_t size = 0; (size = read(file, block.data(), block.size())) > 0;) {
      bytes += static_cast<std::uint64_t>(size);
    }
    close(file);
  }
  watch.lap("read");
  std::printf("mib %llu\n", static_cast<unsigned long long>(bytes >> 20));
}

void run_merge(const Trace& trace, Stopwatch& watch) {
  std::vector<std::byte> block(kBlock);
  std::uint64_t bytes = 0;
  const LogicalTensors tensors = plan(trace, watch);
  for (const auto& [key, tensor] : tensors) {
    Box box{Shape(tensor.shape.size(), 0), tensor.shape};
    const std::uint64_t row = element_count(tensor.shape) / tensor.shape[0] * size_of(tensor.dtype);
    const std::uint64_t rows = kBlock / row;
    for (; box.start[0] < tensor.shape[0]; box.start[0] += rows) {
      box.count[0] = std::min(rows, tensor.shape[0] - box.start[0]);
      read_box(tensor, box, block.data());
      bytes += box.count[0] * row;
    }
  }
  watch.lap("merge");
  std::printf("mib %llu\n", static_cast<unsigned long long>(bytes >> 20));
}

int run(int argc, char** argv) {
  const std::string step = argc > 2 ? argv[1] : "";
  if (argc != (step == "infer" ? 4 : 3)) {
    std::fputs("usage: merge_time plan|read|merge TRACE, or infer TRACE REFERENCE\n", stderr);
    return 2;
  }
  Stopwatch watch;
  const Trace trace = Trace::open(argv[2]);
  if (step == "read") {
    run_read(trace, watch);
  } else {
    open_all(trace);
    watch.lap("open");
    if (step == "plan") run_plan(trace, watch);
    if (step == "merge") run_merge(trace, watch);
    if (step == "infer") run_infer(trace, Trace::open(argv[3]), watch);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak %ld\n", usage.ru_maxrss / 1024);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Trouble& trouble) {
    std::fprintf(stderr, "%s\n", trouble.what());
    return 2;
  }
}
