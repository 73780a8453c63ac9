// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 that does nothing, so that what remains of a call is the recorder's cost.
#include <nccl.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct ncclComm {
  int unused;
};

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId, int) {
  static ncclComm only;
  *comm = &only;
  return ncclSuccess;
}
EXPORT ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                  ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
