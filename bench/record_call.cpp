// SPDX-License-Identifier: Apache-2.0
// What a call of ttrace_record costs the thread that makes it, in CPU time: of tensors on the host,
// whose bytes it copies, and of tensors on a device that does nothing (null_device.cpp), which
// leaves the own cost of queueing the copies; and of tensors on the host of which that is not said,
// in a process without a driver. The ring has room for all. Prints a table.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "capture/ttrace.h"

namespace {

constexpr std::uint64_t kRing = std::uint64_t{240} << 20;
constexpr int kBatches = 15;

double thread_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// The median batch, for one call; negative when a call failed.
double microseconds_a_call(std::uint64_t bytes, std::uint32_t device) {
  const std::uint64_t calls = std::min<std::uint64_t>(1000, kRing / 2 / kBatches / bytes + 1);
  const std::vector<char> data(bytes, 1);
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = TTRACE_FORWARD;
  tensor.dtype = TTRACE_UINT8;
  tensor.ndim = 1;
  tensor.module = "decoder.layers.0.mlp";
  tensor.slot = "output.0";
  tensor.shape = &bytes;
  tensor.data = data.data();
  tensor.alias_of = -1;
  tensor.device = device;
  if (ttrace_open(nullptr) != 0 || ttrace_begin_iteration(0) != 0) return -1;
  if (ttrace_record(&tensor) != 0) return -1;  // sets up what the first call does
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double start = thread_microseconds();
    for (std::uint64_t call = 0; call < calls; ++call) {
      if (ttrace_record(&tensor) < 0) return -1;
    }
    times.push_back((thread_microseconds() - start) / static_cast<double>(calls));
  }
  if (ttrace_close() != 0) return -1;
  std::sort(times.begin(), times.end());
  return times[kBatches / 2];
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "ttrace-call-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  setenv("TTRACE_WRITER", BENCH_WRITER, 1);
  setenv("TTRACE_WHAT", "stats", 1);  // the writer keeps up, and no disk is filled
  setenv("TTRACE_RING", std::to_string(kRing).c_str(), 1);
  std::printf(
      "| bytes of the tensor | on the host, us (copied in the call) | on a device, us (queued) "
      "| anywhere, no driver, us |\n|---|---|---|---|\n");
  bool good = true;
  constexpr std::uint64_t kSizes[] = {64, 4096, 65536, 1 << 20, 4 << 20};
  std::map<std::uint64_t, std::map<std::uint32_t, double>> times;
  for (const std::uint32_t device : {TTRACE_ANYWHERE, TTRACE_HOST, TTRACE_DEVICE}) {
    // A device once found stays known.
    setenv("TTRACE_DEVICE_OPS", device == TTRACE_DEVICE ? BENCH_NULL_DEVICE : "", 1);
    for (const std::uint64_t bytes : kSizes) {
      const std::string trace = folder + "/" + std::to_string(bytes) + "-" + std::to_string(device);
      setenv("TTRACE_OUT", trace.c_str(), 1);
      times[bytes][device] = microseconds_a_call(bytes, device);
      good = good && times[bytes][device] >= 0;
    }
  }
  for (const std::uint64_t bytes : kSizes) {
    const auto [unit, name] = bytes >> 20 != 0   ? std::pair(20, " Mi")
                              : bytes >> 10 != 0 ? std::pair(10, " Ki")
                                                 : std::pair(0, "");
    std::printf("| %llu%s | %.2f | %.2f | %.2f |\n", static_cast<unsigned long long>(bytes >> unit),
                name, times[bytes][TTRACE_HOST], times[bytes][TTRACE_DEVICE],
                times[bytes][TTRACE_ANYWHERE]);
  }
  std::filesystem::remove_all(folder);
  if (!good) std::printf("%s\n", ttrace_last_error());
  return good ? 0 : 1;
}
