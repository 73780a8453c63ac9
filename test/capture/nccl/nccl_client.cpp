// SPDX-License-Identifier: Apache-2.0
// Makes six NCCL calls and prints the all-reduced value; fails loudly on a wrong result.
#include <nccl.h>

#include <cstdio>

int main() {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  float value = 2.5f;
  float sum = 0;
  bool good = ncclGetUniqueId(&id) == ncclSuccess;
  good = good && ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess;
  good = good && ncclGroupStart() == ncclSuccess;
  good = good && ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess;
  good = good && ncclGroupEnd() == ncclSuccess;
  good = good && ncclBcast(&sum, 1, ncclFloat32, 0, comm, nullptr) == ncclSuccess;
  good = good && ncclCommDestroy(comm) == ncclSuccess;
  std::printf("%s %g\n", good ? "ok" : "failed", static_cast<double>(sum));
  return good && sum == 2.5f ? 0 : 1;
}
