// SPDX-License-Identifier: Apache-2.0
// usage: nccl_calls CALLS BYTES [ITERATION]: prints the nanoseconds of an all-reduce of that many
// bytes, by the program's own clock; with an iteration, that one is begun through ttrace.h first.
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
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
  const auto start = std::chrono::steady_clock::now();
  run(calls);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  std::printf("%.1f\n", time.count() / static_cast<double>(calls));
}
