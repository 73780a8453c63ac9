// SPDX-License-Identifier: Apache-2.0
// See functions.hpp.
#include "capture/nccl/functions.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ttrace::nccl {
namespace {

constexpr auto kCount = static_cast<std::size_t>(Function::kCount);

constexpr const char* kNames[] = {
#define TTRACE_NAME(name) #name,
    TTRACE_NCCL_FUNCTIONS(TTRACE_NAME) TTRACE_NCCL_ASKED(TTRACE_NAME)
#undef TTRACE_NAME
};

// dlsym may be called before this library's constructors have run.
constinit std::atomic<void*> addresses[kCount] = {};

void* own_address(std::size_t index) {
  switch (static_cast<Function>(index)) {
#define TTRACE_CASE(name) \
  case Function::name:    \
    return reinterpret_cast<void*>(&::name);
    TTRACE_NCCL_FUNCTIONS(TTRACE_CASE)
#undef TTRACE_CASE
    default:
      return nullptr;
  }
}

// Programs that are linked with NCCL have it next in the search order; who loads it RTLD_LOCAL, as
// Python does, hides it from there, and only its own handle knows it. The handle is kept: the
// library must not go while its addresses are known here.
void* find(const char* name) {
  if (void* next = loader_symbol(RTLD_NEXT, name)) return next;
  for (const char* soname : {"libnccl.so.2", "libnccl.so"}) {
    if (void* handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD)) {
      if (void* found = loader_symbol(handle, name)) return found;
    }
  }
  return nullptr;
}

}  // namespace

void* real_address(Function function) {
  const auto index = static_cast<std::size_t>(function);
  void* address = addresses[index].load(std::memory_order_acquire);
  if (address != nullptr) return address;
  const int saved = errno;
  address = find(kNames[index]);
  errno = saved;
  void* other = nullptr;
  if (address == nullptr || addresses[index].compare_exchange_strong(other, address)) {
    return address;
  }
  return other;
}

void* replacement(const char* name, void* found) {
  for (std::size_t index = 0; index < kCount; ++index) {
    if (std::strcmp(kNames[index], name) != 0) continue;
    void* own = own_address(index);
    if (own == nullptr || found == own) return found;
    void* known = nullptr;
    const bool first = addresses[index].compare_exchange_strong(known, found);
    return first || known == found ? own : found;
  }
  return found;
}

}  // namespace ttrace::nccl
