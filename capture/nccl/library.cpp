// SPDX-License-Identifier: Apache-2.0
// See library.hpp.
#include "capture/nccl/library.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "capture/nccl/functions.hpp"

namespace ttrace::nccl {
namespace {

std::atomic<bool> forked{false};
std::atomic<const Library*> known{nullptr};
std::atomic<std::int64_t> next_look{0};  // nanoseconds

bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}

template <class Type>
bool resolve(void* handle, const char* name, Type& function) {
  function = reinterpret_cast<Type>(loader_symbol(handle, name));
  return function != nullptr;
}

// Leaked: threads may be recording while the process ends.
const Library* functions_of(void* handle) {
  auto* found = new Library;
  if (resolve(handle, "ttrace_iteration", found->iteration) &&
      resolve(handle, "ttrace_microbatch", found->microbatch) &&
      resolve(handle, "ttrace_collectives_wanted", found->wanted) &&
      resolve(handle, "ttrace_scope", found->scope) &&
      resolve(handle, "ttrace_record", found->record) &&
      resolve(handle, "ttrace_record_collective", found->record_collective) &&
      resolve(handle, "ttrace_note", found->note)) {
    return found;
  }
  delete found;
  return nullptr;
}

const Library* loaded_by_the_program() {
  if (loader_symbol(RTLD_DEFAULT, "ttrace_record_collective") != nullptr) {
    return functions_of(RTLD_DEFAULT);
  }
  const char* const names[] = {std::getenv("TTRACE_LIB"), "libttrace_capture.so"};
  for (const char* name : names) {
    if (name == nullptr) continue;
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return functions_of(handle);
  }
  return nullptr;
}

// The agent loads the library once torch is imported and training begins: iterations are its.
bool belongs_to_the_agent() {
  return loader_symbol(RTLD_DEFAULT, "Py_IsInitialized") != nullptr &&
         dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

const Library* load_it() {
  if (belongs_to_the_agent()) return nullptr;
  void* handle = dlopen(std::getenv("TTRACE_LIB"), RTLD_NOW | RTLD_LOCAL);
  const Library* found = handle == nullptr ? nullptr : functions_of(handle);
  if (found == nullptr) return nullptr;
  decltype(&ttrace_open) open = nullptr;
  decltype(&ttrace_begin_iteration) begin = nullptr;
  if (resolve(handle, "ttrace_open", open) && open(nullptr) == 0 &&
      resolve(handle, "ttrace_begin_iteration", begin)) {
    begin(0);
  }
  return found;
}

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

const Library* look() {
  constexpr std::int64_t kPause = 5'000'000;  // a look costs microseconds
  if (now() < next_look.load(std::memory_order_relaxed)) return nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const Library* found = known.load()) return found;
  const Library* found = loaded_by_the_program();
  if (found == nullptr) found = load_it();
  known = found;
  next_look = now() + kPause;
  return found;
}

}  // namespace

bool wanted() {
  static const bool asked = [] {
    const bool all = is_set("TTRACE_COMM") && is_set("TTRACE_OUT") && is_set("TTRACE_LIB");
    if (all) pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return all;
  }();
  return asked && !forked.load(std::memory_order_relaxed);
}

const Library* library() {
  const Library* found = known.load(std::memory_order_acquire);
  return found != nullptr ? found : look();
}

}  // namespace ttrace::nccl
