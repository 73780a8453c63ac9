// SPDX-License-Identifier: Apache-2.0
// What the scenarios' programs do besides NCCL: their inputs, their marks for ttrace.
// Element i of rank r's input is 1 + 10 r + i: whole numbers, so that sums are exact.
#pragma once
#include <dlfcn.h>

#include "capture/ttrace.h"
#include "test/capture/nccl/rig.hpp"

namespace rig {

constexpr std::size_t kCount = 6;

inline double input(int rank, std::size_t i) { return 1 + 10.0 * rank + static_cast<double>(i); }
inline auto own(std::size_t from = 0) {
  return [from](std::size_t i) { return input(rank(), from + i); };
}
inline double total(std::size_t i) {
  double sum = 0;
  for (int r = 0; r < world(); ++r) sum += input(r, i);
  return sum;
}
// The members' inputs one after another.
inline double gathered(std::size_t i) { return input(static_cast<int>(i / kCount), i % kCount); }

inline std::size_t n() { return static_cast<std::size_t>(world()); }
inline std::size_t me() { return static_cast<std::size_t>(rank()); }

// Of ttrace.h, from the program itself where it is linked in, else from where the recorder looks.
template <class Type>
inline Type mark(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) found = dlsym(dlopen(std::getenv("TTRACE_LIB"), RTLD_NOW), name);
  expect(found != nullptr, std::string("no ") + name);
  return reinterpret_cast<Type>(found);
}
#define MARK(name) rig::mark<decltype(&::name)>(#name)

}  // namespace rig
