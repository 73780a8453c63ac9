// SPDX-License-Identifier: Apache-2.0
// The interposed functions that move data. Each hands its arguments on unchanged and returns what
// NCCL returned.
#include "capture/nccl/functions.hpp"
#include "capture/nccl/groups.hpp"
#include "capture/nccl/record.hpp"

namespace {

using ttrace::nccl::Call;
using ttrace::nccl::Kind;

// `forward` calls the real function.
template <class Forward>
ncclResult_t watch(const Call& call, const Forward& forward) {
  using namespace ttrace::nccl;
  if (!watched()) return forward();
  Pending pending{};
  pending.iteration = -1;
  quietly([&] {
    pending = begin(call);
    starting(pending);
  });
  ncclResult_t result;
  {
    const Nested guard;
    result = forward();
  }
  quietly([&] { settle(std::move(pending), result); });
  return result;
}

// Traffic that leaves no buffers to record.
template <class Forward>
ncclResult_t unseen(const char* name, const Forward& forward) {
  using namespace ttrace::nccl;
  if (watched()) {
    quietly(
        [&] { note_unseen(name, "communication that kernels or one side make is not recorded"); });
  }
  return forward();
}

}  // namespace

TTRACE_EXPORT ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                         ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
  return watch({Kind::all_reduce, send, receive, count, type, op, -1, comm, stream},
               TTRACE_FORWARD(ncclAllReduce, send, receive, count, type, op, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, int root,
                                      ncclComm_t comm, cudaStream_t stream) {
  return watch({Kind::reduce, send, receive, count, type, op, root, comm, stream},
               TTRACE_FORWARD(ncclReduce, send, receive, count, type, op, root, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                         ncclDataType_t type, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  return watch({Kind::broadcast, send, receive, count, type, -1, root, comm, stream},
               TTRACE_FORWARD(ncclBroadcast, send, receive, count, type, root, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return watch({Kind::broadcast, buffer, buffer, count, type, -1, root, comm, stream},
               TTRACE_FORWARD(ncclBcast, buffer, count, type, root, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream) {
  return watch({Kind::reduce_scatter, send, receive, count, type, op, -1, comm, stream},
               TTRACE_FORWARD(ncclReduceScatter, send, receive, count, type, op, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                         ncclDataType_t type, ncclComm_t comm,
                                         cudaStream_t stream) {
  return watch({Kind::all_gather, send, receive, count, type, -1, -1, comm, stream},
               TTRACE_FORWARD(ncclAllGather, send, receive, count, type, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  return watch({Kind::send, send, nullptr, count, type, -1, peer, comm, stream},
               TTRACE_FORWARD(ncclSend, send, count, type, peer, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  return watch({Kind::receive, nullptr, receive, count, type, -1, peer, comm, stream},
               TTRACE_FORWARD(ncclRecv, receive, count, type, peer, comm, stream));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
TTRACE_EXPORT ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                                        ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return watch({Kind::all_to_all, send, receive, count, type, -1, -1, comm, stream},
               TTRACE_FORWARD(ncclAlltoAll, send, receive, count, type, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                                      ncclDataType_t type, int root, ncclComm_t comm,
                                      cudaStream_t stream) {
  return watch({Kind::gather, send, receive, count, type, -1, root, comm, stream},
               TTRACE_FORWARD(ncclGather, send, receive, count, type, root, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                                       ncclDataType_t type, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  return watch({Kind::scatter, send, receive, count, type, -1, root, comm, stream},
               TTRACE_FORWARD(ncclScatter, send, receive, count, type, root, comm, stream));
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
TTRACE_EXPORT ncclResult_t ncclAllReduceConfig(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream,
                                               const ncclCollConfig_t* config) {
  return watch(
      {Kind::all_reduce, send, receive, count, type, op, -1, comm, stream},
      TTRACE_FORWARD(ncclAllReduceConfig, send, receive, count, type, op, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclReduceConfig(const void* send, void* receive, size_t count,
                                            ncclDataType_t type, ncclRedOp_t op, int root,
                                            ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) {
  return watch(
      {Kind::reduce, send, receive, count, type, op, root, comm, stream},
      TTRACE_FORWARD(ncclReduceConfig, send, receive, count, type, op, root, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclBroadcastConfig(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, int root, ncclComm_t comm,
                                               cudaStream_t stream,
                                               const ncclCollConfig_t* config) {
  return watch(
      {Kind::broadcast, send, receive, count, type, -1, root, comm, stream},
      TTRACE_FORWARD(ncclBroadcastConfig, send, receive, count, type, root, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclReduceScatterConfig(const void* send, void* receive, size_t count,
                                                   ncclDataType_t type, ncclRedOp_t op,
                                                   ncclComm_t comm, cudaStream_t stream,
                                                   const ncclCollConfig_t* config) {
  return watch({Kind::reduce_scatter, send, receive, count, type, op, -1, comm, stream},
               TTRACE_FORWARD(ncclReduceScatterConfig, send, receive, count, type, op, comm, stream,
                              config));
}
TTRACE_EXPORT ncclResult_t ncclAllGatherConfig(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, ncclComm_t comm,
                                               cudaStream_t stream,
                                               const ncclCollConfig_t* config) {
  return watch(
      {Kind::all_gather, send, receive, count, type, -1, -1, comm, stream},
      TTRACE_FORWARD(ncclAllGatherConfig, send, receive, count, type, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclAlltoAllConfig(const void* send, void* receive, size_t count,
                                              ncclDataType_t type, ncclComm_t comm,
                                              cudaStream_t stream, const ncclCollConfig_t* config) {
  return watch(
      {Kind::all_to_all, send, receive, count, type, -1, -1, comm, stream},
      TTRACE_FORWARD(ncclAlltoAllConfig, send, receive, count, type, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclGatherConfig(const void* send, void* receive, size_t count,
                                            ncclDataType_t type, int root, ncclComm_t comm,
                                            cudaStream_t stream, const ncclCollConfig_t* config) {
  return watch(
      {Kind::gather, send, receive, count, type, -1, root, comm, stream},
      TTRACE_FORWARD(ncclGatherConfig, send, receive, count, type, root, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclScatterConfig(const void* send, void* receive, size_t count,
                                             ncclDataType_t type, int root, ncclComm_t comm,
                                             cudaStream_t stream, const ncclCollConfig_t* config) {
  return watch(
      {Kind::scatter, send, receive, count, type, -1, root, comm, stream},
      TTRACE_FORWARD(ncclScatterConfig, send, receive, count, type, root, comm, stream, config));
}
TTRACE_EXPORT ncclResult_t ncclPutSignal(const void* from, size_t count, ncclDataType_t type,
                                         int peer, ncclWindow_t window, size_t offset, int signal,
                                         int context, unsigned int flags, ncclComm_t comm,
                                         cudaStream_t stream) {
  return unseen("ncclPutSignal", TTRACE_FORWARD(ncclPutSignal, from, count, type, peer, window,
                                                offset, signal, context, flags, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclSignal(int peer, int signal, int context, unsigned int flags,
                                      ncclComm_t comm, cudaStream_t stream) {
  return unseen("ncclSignal",
                TTRACE_FORWARD(ncclSignal, peer, signal, context, flags, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm,
                                          cudaStream_t stream) {
  return unseen("ncclWaitSignal", TTRACE_FORWARD(ncclWaitSignal, count, signals, comm, stream));
}
TTRACE_EXPORT ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements,
                                             void* made) {
  return unseen("ncclDevCommCreate", TTRACE_FORWARD(ncclDevCommCreate, comm, requirements, made));
}
#endif
