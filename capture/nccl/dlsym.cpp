// SPDX-License-Identifier: Apache-2.0
// Programs that look NCCL up by dlsym on its handle (ctypes, XLA, vLLM) would pass the interposed
// functions by, so dlsym is interposed, too, for names that begin with "nccl". dlopen is not: that
// would break its caller's RUNPATH.
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "capture/nccl/functions.hpp"

namespace {

using Dlsym = void* (*)(void*, const char*) noexcept;

constinit std::atomic<Dlsym> loaders{nullptr};

// The version that libc gave it on this machine's architecture.
Dlsym find_loaders() noexcept {
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) {
      loaders = reinterpret_cast<Dlsym>(found);
      return loaders;
    }
  }
  return nullptr;
}

Dlsym loaders_dlsym() noexcept {
  const Dlsym known = loaders.load(std::memory_order_relaxed);
  return known != nullptr ? known : find_loaders();
}

__attribute__((noinline)) void* nccl_symbol(Dlsym real, void* handle, const char* name) noexcept {
  void* found = real(handle, name);
  return found == nullptr ? nullptr : ttrace::nccl::replacement(name, found);
}

}  // namespace

void* ttrace::nccl::loader_symbol(void* handle, const char* name) {
  const Dlsym real = loaders_dlsym();
  return real == nullptr ? nullptr : real(handle, name);
}

// What RTLD_NEXT and RTLD_DEFAULT mean depends on who calls, which the loader reads from the return
// address: both returns below must be jumps, for which the compiler has to optimise.
TTRACE_EXPORT void* dlsym(void* handle, const char* name) noexcept {
  const Dlsym real = loaders_dlsym();
  const bool by_caller = handle == RTLD_NEXT || handle == RTLD_DEFAULT;
  if (by_caller || std::strncmp(name, "nccl", 4) != 0) return real(handle, name);
  return nccl_symbol(real, handle, name);
}
