// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 for machines without a GPU, built against the real header: data calls between the
// processes of one machine, on the streams of the fake CUDA runtime. Communicators:
// communicator.cpp. Like the real one it calls itself through the PLT (ncclBcast).
#include <cstdlib>

#include "test/fake_nccl/communicator.hpp"

namespace {

using fake::Kind;
using fake::Operation;

ncclResult_t check(const ncclComm* comm, const Operation& call) {
  if (fake::bytes_of(call.type) == 0) return ncclInvalidArgument;
  if (call.peer < 0 || call.peer >= comm->size) return ncclInvalidArgument;
  return ncclSuccess;
}

// `op` of a predefined kind or made by ncclRedOpCreatePreMulSum.
ncclResult_t choose(ncclComm_t comm, ncclRedOp_t op, Operation& call) {
  if (op < 0) return ncclInvalidArgument;
  if (op < ncclNumOps) {
    call.reduction.op = op;
    return ncclSuccess;
  }
  const std::lock_guard guard(comm->mutex);
  const auto own = static_cast<std::size_t>(op - ncclNumOps);
  if (own >= comm->reductions.size()) return ncclInvalidArgument;
  call.reduction = comm->reductions[own];
  call.factor_at = comm->factors[own];
  return ncclSuccess;
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, Operation call, ncclRedOp_t op = ncclSum) {
  fake::enter_group();
  ncclResult_t error = fake::ready(comm);
  if (error == ncclSuccess) error = check(comm, call);
  if (error == ncclSuccess) error = choose(comm, op, call);
  if (error == ncclSuccess) {
    fake::collect(comm, stream, call);
  } else {
    fake::spoil_group(error);
  }
  const ncclResult_t result = fake::leave_group();
  return error == ncclSuccess ? result : error;
}

}  // namespace

FAKE_EXPORT ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
FAKE_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
FAKE_EXPORT const char* ncclGetLastError(ncclComm_t) { return ""; }

FAKE_EXPORT ncclResult_t ncclGroupStart() {
  fake::enter_group();
  return ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclGroupEnd() { return fake::leave_group(); }

FAKE_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                  ncclDataType_t type,
                                                  ncclScalarResidence_t residence,
                                                  ncclComm_t comm) {
  if (const ncclResult_t error = fake::ready(comm); error != ncclSuccess) return error;
  const bool now = residence == ncclScalarHostImmediate;
  const std::lock_guard guard(comm->mutex);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->reductions.size()));
  comm->reductions.push_back({ncclSum, true, now ? fake::number_at(scalar, type) : 1});
  comm->factors.push_back(now ? nullptr : scalar);
  return ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

FAKE_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }
FAKE_EXPORT ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
FAKE_EXPORT ncclResult_t ncclMemFree(void* pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

FAKE_EXPORT ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream) {
  return start(comm, stream, {Kind::all_reduce, send, receive, count, type, {}, nullptr, 0}, op);
}
FAKE_EXPORT ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                                    ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  return start(comm, stream, {Kind::reduce, send, receive, count, type, {}, nullptr, root}, op);
}
FAKE_EXPORT ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                       ncclDataType_t type, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  return start(comm, stream, {Kind::broadcast, send, receive, count, type, {}, nullptr, root});
}
FAKE_EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
FAKE_EXPORT ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  return start(comm, stream, {Kind::reduce_scatter, send, receive, count, type, {}, nullptr, 0},
               op);
}
FAKE_EXPORT ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                       ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::all_gather, send, receive, count, type, {}, nullptr, 0});
}
FAKE_EXPORT ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::send, send, nullptr, count, type, {}, nullptr, peer});
}
FAKE_EXPORT ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::receive, nullptr, receive, count, type, {}, nullptr, peer});
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
FAKE_EXPORT ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::all_to_all, send, receive, count, type, {}, nullptr, 0});
}
FAKE_EXPORT ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                                    ncclDataType_t type, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  return start(comm, stream, {Kind::gather, send, receive, count, type, {}, nullptr, root});
}
FAKE_EXPORT ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                                     ncclDataType_t type, int root, ncclComm_t comm,
                                     cudaStream_t stream) {
  return start(comm, stream, {Kind::scatter, send, receive, count, type, {}, nullptr, root});
}
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
FAKE_EXPORT ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*) {
  return ncclInvalidUsage;
}
FAKE_EXPORT ncclResult_t ncclAllReduceConfig(const void* send, void* receive, size_t count,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream, const ncclCollConfig_t*) {
  return ncclAllReduce(send, receive, count, type, op, comm, stream);
}
#endif
