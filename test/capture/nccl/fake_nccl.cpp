// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 for one rank without a GPU, built against the real header: collectives over one
// rank are copies. Like the real one it calls itself through the PLT (ncclBcast).
#include <nccl.h>

#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct ncclComm {
  int rank;
  int size;
};

namespace {
size_t bytes_of(size_t count, ncclDataType_t type) {
  return count * (type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4);
}
}  // namespace

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId, int rank) {
  *comm = new ncclComm{rank, size};
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
EXPORT ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                  ncclDataType_t type, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  std::memmove(receive, send, bytes_of(count, type));
  return ncclSuccess;
}
EXPORT ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                  ncclDataType_t type, int, ncclComm_t, cudaStream_t) {
  std::memmove(receive, send, bytes_of(count, type));
  return ncclSuccess;
}
EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
EXPORT ncclResult_t ncclGroupStart() { return ncclSuccess; }
EXPORT ncclResult_t ncclGroupEnd() { return ncclSuccess; }
