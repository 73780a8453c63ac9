// SPDX-License-Identifier: Apache-2.0
// Measures one pair of made-up tensors, once, in a function by itself, so that a profiler can count
// its instructions: measure_once TYPE equal|all COUNT. Prints the loop's name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "diff/backend.hpp"

extern "C" __attribute__((noinline)) void measured(const ttrace::Backend& backend,
                                                   ttrace::DType type, const ttrace::RunPair& run,
                                                   ttrace::Metrics& total) {
  backend.measure(type, 1, {&run, 1}, total);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto type = ttrace::dtype_from_name(argv[1]);
  if (!type) return 2;
  const bool equal = std::string_view(argv[2]) == "equal";
  const std::uint64_t count = std::strtoull(argv[3], nullptr, 10);
  const std::size_t size = ttrace::size_of(*type);
  std::vector<std::byte> reference(count * size), candidate(count * size);
  std::uint32_t state = 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    ttrace::encode(*type, 1 + 0x1p-32 * state, reference.data() + i * size, 0);
    std::memcpy(candidate.data() + i * size, reference.data() + i * size, size);
    if (equal) continue;
    std::byte& low = candidate[i * size];
    low = static_cast<std::byte>(std::to_integer<unsigned>(low) ^ (1u + (state >> 30)));
  }
  const auto backends = ttrace::make_cpu_backends();
  ttrace::Metrics total;
  measured(*backends.front(), *type, {reference.data(), candidate.data(), count, 0}, total);
  if (total.count != count || (total.unequal == 0) != equal) return 1;
  const std::string name(backends.front()->name());
  std::puts(name.c_str());
  return 0;
}
