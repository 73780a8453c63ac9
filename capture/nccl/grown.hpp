// SPDX-License-Identifier: Apache-2.0
// Names that need more than arguments: a communicator that grows, and one of a single process; and
// the factors of premultiplied sums.
#pragma once
#include <nccl.h>

#include <string>

namespace ttrace::nccl {

// The old members of a communicator that grows know the parent, the new ones only the unique id:
// the member that has both leaves the name in the trace directory, before it calls NCCL.
std::string group_before_grow(ncclComm_t parent, const ncclUniqueId* id);  // "" for a new member
std::string group_after_grow(const ncclUniqueId& id);                      // for a new member

// Equal in no two processes.
std::string of_this_process();

void keep_factor(ncclComm_t comm, ncclRedOp_t op, const void* scalar, ncclDataType_t type);
void drop_factor(ncclComm_t comm, ncclRedOp_t op);

}  // namespace ttrace::nccl
