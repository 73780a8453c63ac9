// SPDX-License-Identifier: Apache-2.0
// The C interface (ttrace.h): each function forwards to the session and lets no exception out. The
// library exports these names and no others (ttrace.map) and needs nothing but libc, because it is
// loaded into training processes that have libraries, and versions of them, of their own.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

// First of ours: the functions declared in it become visible, everything else stays hidden.
#pragma GCC visibility push(default)
#include "capture/ttrace.h"
#pragma GCC visibility pop

#include "capture/scopes.hpp"
#include "capture/session.hpp"
#include "capture/session_holder.hpp"

namespace ttrace {

Session& session() {
  alignas(Session) static unsigned char storage[sizeof(Session)];
  static Session* const only = new (storage) Session;
  return *only;
}

namespace {

template <class Call>
auto guarded(Call&& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const std::exception& error) {
    try {
      return session().remember(EIO, error.what());
    } catch (...) {
      return -EIO;
    }
  }
}

__attribute__((destructor)) void close_at_exit() {
  (void)guarded([] {
    session().close_at_exit();
    return 0;
  });
}

}  // namespace
}  // namespace ttrace

using ttrace::guarded;
using ttrace::session;

extern "C" {

int ttrace_open(const ttrace_options* options) {
  return guarded([&] { return session().open(options); });
}

int ttrace_active(void) { return session().active() ? 1 : 0; }

int64_t ttrace_iteration(void) { return session().iteration(); }

int ttrace_set(const char* json) {
  return guarded([&] { return session().set(json); });
}

int ttrace_note(const char* what, const char* where, const char* why) {
  return guarded([&] { return session().note(what, where, why); });
}

int ttrace_begin_iteration(int64_t iteration) {
  return guarded([&] { return session().begin_iteration(iteration); });
}

int ttrace_end_iteration(void) {
  return guarded([] { return session().end_iteration(); });
}

int32_t ttrace_microbatch(void) { return session().microbatch(); }

int ttrace_begin_microbatch(int32_t microbatch) {
  return guarded([&] { return session().begin_microbatch(microbatch); });
}

int ttrace_push_scope(const char* module) {
  return guarded([&] {
    if (module == nullptr || *module == '\0') {
      return session().refuse("ttrace_push_scope", "module is empty");
    }
    ttrace::push_scope(module);
    return 0;
  });
}

int ttrace_pop_scope(void) {
  return guarded([] {
    return ttrace::pop_scope() ? 0 : session().refuse("ttrace_pop_scope", "no scope was pushed");
  });
}

const char* ttrace_scope(void) { return ttrace::innermost_scope(); }

int ttrace_axis(const char* name, int32_t size, int32_t coordinate) {
  return guarded([&] { return session().axis(name, size, coordinate); });
}

int ttrace_group(const char* name, const int32_t* ranks, size_t count) {
  return guarded([&] { return session().group(name, ranks, count); });
}

int ttrace_record_collective(const ttrace_collective* call) {
  return guarded([&] { return session().record_collective(call); });
}

int ttrace_collectives_wanted(void) { return session().collectives_wanted(); }

int ttrace_pause(int paused) { return session().pause(paused != 0) ? 1 : 0; }

int64_t ttrace_record(const ttrace_tensor* tensor) {
  return guarded([&] { return session().record(tensor); });
}

int ttrace_feed(const ttrace_tensor* tensor, void* data) {
  return guarded([&] { return session().feed(tensor, data); });
}

int ttrace_close(void) {
  return guarded([] { return session().close(); });
}

const char* ttrace_last_error(void) {
  // A copy for this thread, so that another thread's error does not change it while it is read.
  static thread_local char text[1024];
  text[0] = '\0';
  (void)guarded([] {
    const std::string error = session().last_error();
    const std::size_t length = std::min(error.size(), sizeof text - 1);
    std::memcpy(text, error.data(), length);
    text[length] = '\0';
    return 0;
  });
  return text;
}

}  // extern "C"
