// SPDX-License-Identifier: Apache-2.0
// The data calls of the fake NCCL, as a stream carries them out.
#pragma once
#include <nccl.h>

#include <vector>

#include "test/fake_nccl/reduce.hpp"
#include "test/fake_nccl/room.hpp"

namespace fake {

enum class Kind {
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

struct Operation {
  Kind kind = Kind::all_reduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;  // as NCCL counts for this call
  ncclDataType_t type = ncclFloat32;
  Reduction reduction;
  const void* factor_at = nullptr;  // where a premultiplied sum finds its factor when it runs
  int peer = 0;                     // root, or the other side
};

// All of one communicator's calls of a group: the collectives in their order, then the sends and
// receives together. False when another member is gone.
bool carry_out(Room& room, int member, int size, const std::vector<Operation>& operations);

}  // namespace fake
