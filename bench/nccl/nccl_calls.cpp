// SPDX-License-Identifier: Apache-2.0
// usage: nccl_calls CALLS BYTES [ITERATION]: prints the nanoseconds of an all-reduce of that many
// bytes, by the clock and of the thread's CPU time; with an iteration, that one is begun through
// ttrace.h first.
#include <dlfcn.h>
#include <nccl.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "capture/ttrace.h"

namespace {

bool begin(std::int64_t iteration) {
  const char* path = std::getenv("TTRACE_LIB");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
  if (library == nullptr) return false;
  const auto open = reinterpret_cast<decltype(&ttrace_open)>(dlsym(library, "ttrace_open"));
  const auto start =
      reinterpret_cast<decltype(&ttrace_begin_iteration)>(dlsym(library, "ttrace_begin_iteration"));
  return open(nullptr) == 0 && start(iteration) == 0;
}

double nanoseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const long calls = std::atol(words[1]);
  const std::size_t elements = std::strtoull(words[2], nullptr, 10) / sizeof(float);
  if (count > 3 && !begin(std::atol(words[3]))) return 2;
  std::vector<float> data(elements, 1.0f);
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  ncclGetUniqueId(&id);
  ncclCommInitRank(&comm, 1, id, 0);
  const auto run = [&](long number) {
    for (long i = 0; i < number; ++i) {
      ncclAllReduce(data.data(), data.data(), elements, ncclFloat32, ncclSum, comm, nullptr);
    }
  };
  run(calls / 10);
  const double start = nanoseconds(CLOCK_MONOTONIC), busy = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  run(calls);
  std::printf("%.1f %.1f\n", (nanoseconds(CLOCK_MONOTONIC) - start) / static_cast<double>(calls),
              (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - busy) / static_cast<double>(calls));
}
