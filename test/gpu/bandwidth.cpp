// SPDX-License-Identifier: Apache-2.0
// How fast two tensors on the device are compared, as a share of how fast the device copies: both
// read or write twice the bytes of a tensor. Also whether the result is the CPU's. Exit code 77
// where there is no device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "diff/backend.hpp"
#include "diff/compare_device.h"

namespace {

using namespace ttrace;

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr int kRounds = 9;

struct Pair {
  std::vector<std::byte> reference, candidate;
  void* on_device[2] = {};
};

bool succeeded(cudaError_t code, const char* what) {
  if (code != cudaSuccess) std::printf("%s: %s\n", what, cudaGetErrorString(code));
  return code == cudaSuccess;
}

// Small numbers whose lowest bit differs here and there: sums are then not the same by chance.
Pair make_pair(DType type) {
  Pair pair{std::vector<std::byte>(kBytes), {}, {}};
  std::uint32_t state = 1;
  for (std::byte& byte : pair.reference) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24 & 0x3fu);
  }
  pair.candidate = pair.reference;
  for (std::size_t i = 0; i < kBytes; i += size_of(type)) pair.candidate[i] ^= std::byte{1};
  return pair;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double median_seconds(const Work& work) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  return times[kRounds / 2];
}

bool agrees(const ttrace_comparison& device, const Pair& pair, DType type) {
  Metrics host;
  const RunPair run{pair.reference.data(), pair.candidate.data(), kBytes / size_of(type), 0};
  make_cpu_backend()->measure(type, 1, {&run, 1}, host);
  return device.count == host.count && device.unequal == host.unequal &&
         device.first_unequal == host.first_unequal && device.worst == host.worst &&
         device.max_error == host.max_error && device.max_relative == host.max_relative &&
         std::memcmp(device.ulp, host.ulp, sizeof host.ulp) == 0 &&
         std::abs(device.error_squares - host.sums.error_squares) <=
             1e-12 * host.sums.error_squares;
}

bool run(DType type, double wanted) {
  Pair pair = make_pair(type);
  for (int side = 0; side < 2; ++side) {
    const std::vector<std::byte>& bytes = side == 0 ? pair.reference : pair.candidate;
    if (!succeeded(cudaMalloc(&pair.on_device[side], kBytes), "cudaMalloc") ||
        !succeeded(cudaMemcpy(pair.on_device[side], bytes.data(), kBytes, cudaMemcpyHostToDevice),
                   "copy")) {
      return false;
    }
  }
  ttrace_comparison result{};
  result.struct_size = sizeof result;
  char why[200] = "";
  int code = TTRACE_COMPARED;
  const std::string name(name_of(type));
  const double compare = median_seconds([&] {
    code = ttrace_compare_device(pair.on_device[0], pair.on_device[1], kBytes / size_of(type),
                                 name.c_str(), nullptr, &result, why, sizeof why);
  });
  const bool same = code == TTRACE_COMPARED && agrees(result, pair, type);
  const double copy = median_seconds([&] {  // last, as it spoils a side
    cudaMemcpy(pair.on_device[0], pair.on_device[1], kBytes, cudaMemcpyDeviceToDevice);
    cudaDeviceSynchronize();
  });
  for (void* data : pair.on_device) cudaFree(data);
  std::printf("| %s | %.0f | %.0f | %.2f | %.2f | %s |\n", name.c_str(), 2e-9 * kBytes / compare,
              2e-9 * kBytes / copy, copy / compare, wanted, same ? "equal" : why);
  return same && copy / compare >= wanted;
}

}  // namespace

int main() {
  if (const std::string none = cuda_unavailable(); !none.empty()) {
    std::printf("skipped: %s\n", none.c_str());
    return 77;
  }
  std::printf("| type | comparing, GB/s | copying, GB/s | share | wanted | CPU's result |\n");
  std::printf("|---|---|---|---|---|---|\n");
  const bool single = run(DType::float32, 0.8);
  const bool half = run(DType::bfloat16, 0.45);
  return single && half ? 0 : 1;
}
