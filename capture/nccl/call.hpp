// SPDX-License-Identifier: Apache-2.0
// A data call of NCCL, and what is kept of it until its result can be recorded.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ttrace::nccl {

enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_to_all,
  gather,
  scatter,
  send,
  receive
};

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;  // as NCCL counts
  ncclDataType_t type;
  int op;    // ncclRedOp_t; -1: none
  int peer;  // root, or the other side; -1: none
  ncclComm_t comm;
  cudaStream_t stream;
};

struct Communicator;

struct Pending {
  Call call;
  std::shared_ptr<Communicator> communicator;
  std::uint64_t sequence;
  std::int64_t iteration;  // in which it was made; -1: it is not recorded
  int wanted;              // what of it, as ttrace_collectives_wanted said when it was made
  std::int32_t microbatch;
  std::uint32_t number;  // of the module's calls of this function
  std::int64_t input;    // record of what went in; negative: none
  std::uint32_t flags;   // enum ttrace_collective_flag
  double factor;
  std::string module;
};

}  // namespace ttrace::nccl
