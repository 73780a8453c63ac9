// SPDX-License-Identifier: Apache-2.0
// libttrace_nccl.so: preloaded by `ttrace-capture --nccl`, writes one JSON line a NCCL call to
// $TTRACE_OUT/nccl-<rank>.jsonl (docs/format.md). It depends on libc only: NCCL's header, never its
// library, because an undefined symbol here would kill every program of the job.
// A call is recorded once even when libnccl calls itself through the PLT (ncclBcast does).
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define TTRACE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Preloaded at start, so the initial-exec model is safe and never allocates.
__attribute__((tls_model("initial-exec"))) thread_local int nesting = 0;
struct Nested {
  Nested() { ++nesting; }
  ~Nested() { --nesting; }
};

std::atomic<unsigned long> sequence{0};
std::atomic<bool> forked{false};

// Programs that link libnccl find it next in the search order; Python loads it RTLD_LOCAL, where
// only its own handle knows it.
void* real_symbol(const char* name) {
  if (void* next = dlsym(RTLD_NEXT, name)) return next;
  for (const char* soname : {"libnccl.so.2", "libnccl.so"}) {
    if (void* handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD)) {
      if (void* found = dlsym(handle, name)) return found;
    }
  }
  return nullptr;
}

int open_log() {
  const char* directory = std::getenv("TTRACE_OUT");
  if (directory == nullptr || *directory == '\0') return -1;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  const char* rank = std::getenv("RANK");
  if (rank == nullptr) rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("SLURM_PROCID");
  char path[4096];
  const int length = rank != nullptr
                         ? std::snprintf(path, sizeof path, "%s/nccl-%s.jsonl", directory, rank)
                         : std::snprintf(path, sizeof path, "%s/nccl-pid%d.jsonl", directory,
                                         static_cast<int>(getpid()));
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return -1;
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

struct Call {
  const char* name;
  std::uint64_t count = 0;
  int dtype = -1;  // ncclDataType_t
  int op = -1;     // ncclRedOp_t
  int peer = -1;   // root, or the other side of a send or receive
  const void* comm = nullptr;
};

// One write a line: lines of several threads never mix. Failures are silent by design; the traced
// program must not notice, and a missing line is seen from the sequence numbers.
void record(const Call& call, ncclResult_t result) {
  if (nesting != 0 || forked) return;
  static const int log = open_log();
  if (log < 0) return;
  const int saved_errno = errno;
  char line[512];
  const int length = std::snprintf(
      line, sizeof line,
      "{\"sequence\":%lu,\"call\":\"%s\",\"count\":%llu,\"dtype\":%d,\"op\":%d,\"peer\":%d,"
      "\"comm\":\"%p\",\"result\":%d}\n",
      sequence++, call.name, static_cast<unsigned long long>(call.count), call.dtype, call.op,
      call.peer, call.comm, static_cast<int>(result));
  if (length > 0 && write(log, line, static_cast<std::size_t>(length)) < 0) errno = saved_errno;
  errno = saved_errno;
}

}  // namespace

// The real function is looked up once; without one the call fails as NCCL itself would fail.
#define FORWARD(name, parameters, arguments, ...)                                              \
  TTRACE_EXPORT ncclResult_t name parameters {                                                 \
    static const auto real = reinterpret_cast<ncclResult_t(*) parameters>(real_symbol(#name)); \
    if (real == nullptr) return ncclSystemError;                                               \
    ncclResult_t result;                                                                       \
    {                                                                                          \
      const Nested nested;                                                                     \
      result = real arguments;                                                                 \
    }                                                                                          \
    record(Call{#name, __VA_ARGS__}, result);                                                  \
    return result;                                                                             \
  }

// clang-format off
FORWARD(ncclAllReduce, (const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t o, ncclComm_t c, cudaStream_t st), (s, r, n, t, o, c, st), n, t, o, -1, c)
FORWARD(ncclReduce, (const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t o, int root, ncclComm_t c, cudaStream_t st), (s, r, n, t, o, root, c, st), n, t, o, root, c)
FORWARD(ncclReduceScatter, (const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t o, ncclComm_t c, cudaStream_t st), (s, r, n, t, o, c, st), n, t, o, -1, c)
FORWARD(ncclAllGather, (const void* s, void* r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t st), (s, r, n, t, c, st), n, t, -1, -1, c)
FORWARD(ncclBroadcast, (const void* s, void* r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st), (s, r, n, t, root, c, st), n, t, -1, root, c)
FORWARD(ncclBcast, (void* b, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st), (b, n, t, root, c, st), n, t, -1, root, c)
FORWARD(ncclSend, (const void* s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t st), (s, n, t, peer, c, st), n, t, -1, peer, c)
FORWARD(ncclRecv, (void* r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t st), (r, n, t, peer, c, st), n, t, -1, peer, c)
FORWARD(ncclGroupStart, (), (), 0)
FORWARD(ncclGroupEnd, (), (), 0)
FORWARD(ncclCommInitRank, (ncclComm_t* c, int n, ncclUniqueId id, int rank), (c, n, id, rank), static_cast<std::uint64_t>(n), -1, -1, rank, c ? *c : nullptr)
FORWARD(ncclCommInitRankConfig, (ncclComm_t* c, int n, ncclUniqueId id, int rank, ncclConfig_t* cfg), (c, n, id, rank, cfg), static_cast<std::uint64_t>(n), -1, -1, rank, c ? *c : nullptr)
FORWARD(ncclCommSplit, (ncclComm_t c, int color, int key, ncclComm_t* out, ncclConfig_t* cfg), (c, color, key, out, cfg), 0, -1, -1, color, c)
FORWARD(ncclCommDestroy, (ncclComm_t c), (c), 0, -1, -1, -1, c)
// clang-format on
