// SPDX-License-Identifier: Apache-2.0
// Reductions of the fake NCCL: in the order of the members, rounded to the type at every step.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <vector>

namespace fake {

std::size_t bytes_of(ncclDataType_t type);  // 0: unknown type

struct Reduction {
  ncclRedOp_t op = ncclSum;  // a predefined one; ncclSum with `scaled` for a premultiplied sum
  bool scaled = false;
  double factor = 1;
};

// The value that `scalar` points to.
double number_at(const void* scalar, ncclDataType_t type);

// to[i] = members[0][i] op members[1][i] op ...
void reduce(const std::vector<const char*>& members, char* to, std::size_t count,
            ncclDataType_t type, const Reduction& reduction);

}  // namespace fake
