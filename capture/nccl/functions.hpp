// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that are interposed, and how the real ones are found. Only NCCL's header is
// used, never its library: an undefined symbol here would kill every program of the job.
#pragma once
#include <nccl.h>

#define TTRACE_EXPORT extern "C" __attribute__((visibility("default")))

// clang-format off
// Those of every NCCL since 2.18, then the newer ones.
#define TTRACE_NCCL_OLD(X)                                                                        \
  X(ncclAllReduce) X(ncclReduce) X(ncclBroadcast) X(ncclBcast) X(ncclReduceScatter)               \
  X(ncclAllGather) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)                      \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommSplit)               \
  X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclRedOpCreatePreMulSum)        \
  X(ncclRedOpDestroy)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
#define TTRACE_NCCL_23(X) X(ncclCommInitRankScalable) X(ncclGroupSimulateEnd)
#else
#define TTRACE_NCCL_23(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define TTRACE_NCCL_28(X) X(ncclAlltoAll) X(ncclGather) X(ncclScatter) X(ncclCommShrink)
#else
#define TTRACE_NCCL_28(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
#define TTRACE_NCCL_32(X)                                                                         \
  X(ncclAllReduceConfig) X(ncclReduceConfig) X(ncclBroadcastConfig) X(ncclReduceScatterConfig)    \
  X(ncclAllGatherConfig) X(ncclAlltoAllConfig) X(ncclGatherConfig) X(ncclScatterConfig)           \
  X(ncclCommGrow) X(ncclPutSignal) X(ncclSignal) X(ncclWaitSignal) X(ncclDevCommCreate)
// Of nccl_device.h, whose types are not needed to hand it on.
extern "C" ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* made);
#else
#define TTRACE_NCCL_32(X)
#endif
#define TTRACE_NCCL_FUNCTIONS(X) \
  TTRACE_NCCL_OLD(X) TTRACE_NCCL_23(X) TTRACE_NCCL_28(X) TTRACE_NCCL_32(X)
// Called here, not interposed.
#define TTRACE_NCCL_ASKED(X) X(ncclCommCount) X(ncclCommUserRank)
// clang-format on

namespace ttrace::nccl {

enum class Function {
#define TTRACE_NAME(name) name,
  TTRACE_NCCL_FUNCTIONS(TTRACE_NAME) TTRACE_NCCL_ASKED(TTRACE_NAME)
#undef TTRACE_NAME
      kCount
};

// nullptr when no NCCL is there; errno and the program's own look-ups are untouched.
void* real_address(Function function);

// What dlsym(handle, name) is to return, where the loader has found `found`: the interposed
// function when it is there to forward to `found`; another NCCL's function stays itself.
void* replacement(const char* name, void* found);

// Past our own dlsym.
void* loader_symbol(void* handle, const char* name);

}  // namespace ttrace::nccl

#define TTRACE_REAL(name) \
  (reinterpret_cast<decltype(&::name)>(ttrace::nccl::real_address(ttrace::nccl::Function::name)))

// Without a real function the call fails as NCCL itself would fail.
#define TTRACE_FORWARD(name, ...)                                 \
  [&] {                                                           \
    const auto real = TTRACE_REAL(name);                          \
    return real == nullptr ? ncclSystemError : real(__VA_ARGS__); \
  }
