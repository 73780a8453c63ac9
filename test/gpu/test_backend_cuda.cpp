// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels against the CPU backend on one device; exits 77 where there is none. Not Catch2:
// the exit code must tell "skipped" from "passed".
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "diff/backend.hpp"

namespace {

using namespace ttrace;

bool near(double device, double host, double scale) {
  return !std::isfinite(host)
             ? !std::isfinite(device)
             : std::fabs(device - host) <= 1e-12 * std::max(std::fabs(host), scale);
}

bool agree(const Metrics& device, const Metrics& host) {
  const double scale = std::sqrt(host.sums.error_squares) * std::sqrt(host.sums.reference_squares);
  return device.count == host.count && device.unequal == host.unequal &&
         device.nonfinite_mismatch == host.nonfinite_mismatch && device.worst == host.worst &&
         device.first_unequal == host.first_unequal && device.max_error == host.max_error &&
         device.max_relative == host.max_relative &&
         std::memcmp(device.ulp, host.ulp, sizeof host.ulp) == 0 &&
         near(device.sums.error_squares, host.sums.error_squares, 0) &&
         near(device.sums.reference_squares, host.sums.reference_squares, 0) &&
         (!std::isfinite(scale) ||
          near(device.sums.error_products, host.sums.error_products, scale));
}

}  // namespace

int main() {
  const std::string why = cuda_unavailable();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  const auto cpu = make_cpu_backend();
  const auto cuda = make_cuda_backend();
  int failures = 0;
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    for (const std::uint64_t count : {1ull, 127ull, 16385ull, 9000001ull}) {
      const DType type = static_cast<DType>(code);
      std::mt19937 random(code + 1u);
      std::vector<std::byte> reference(count * size_of(type));
      for (std::byte& byte : reference) {
        byte = static_cast<std::byte>(random() & (type == DType::boolean ? 1u : 0xffu));
      }
      std::vector<std::byte> candidate = reference;
      for (std::size_t at = 3; at < candidate.size(); at += 41) candidate[at] ^= std::byte{1};
      const RunPair run{reference.data(), candidate.data(), count, 5};
      Metrics on_cpu, on_cuda;
      cpu->measure(type, 1, {&run, 1}, on_cpu);
      cuda->measure(type, 1, {&run, 1}, on_cuda);
      const bool same = agree(on_cuda, on_cpu);
      failures += !same;
      std::printf("%s x %llu: %s\n", std::string(name_of(type)).c_str(),
                  static_cast<unsigned long long>(count), same ? "agree" : "DIFFER");
    }
  }
  return failures == 0 ? 0 : 1;
}
