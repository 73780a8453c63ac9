// SPDX-License-Identifier: Apache-2.0
// What must have come out of a collective, given what went in: pieces of outputs that are copies of
// pieces of inputs, and pieces that are reductions of several.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {

struct Source {
  Part part;
  std::int32_t rank = -1;
};

struct ExpectedCopy {
  Source from;
  Part to;
  std::vector<std::int32_t> ranks;  // whose outputs, bit-equal, hold it
};

struct ExpectedReduction {
  std::vector<Source> from;
  Part to;
  std::vector<std::int32_t> ranks;
};

struct Expected {
  std::vector<ExpectedCopy> copies;
  std::vector<ExpectedReduction> reductions;
  std::string unknown;  // not empty: why there is nothing, or not all
};

// Of a collective whose members' buffers are all there with their data, or a send and its receive.
[[nodiscard]] Expected expected_of(const Joint& joint);

// Outputs that must be equal bit for bit, whatever went in: of all members of an all_reduce,
// broadcast or all_gather. Fewer than two: there are none.
[[nodiscard]] std::vector<const Call*> equal_outputs(const Joint& joint);

// The recorded input whose copy the whole output of `call` must be, for hashes: of a broadcast's
// root, of the sender. nullptr: there is none.
[[nodiscard]] const Call* origin_of(const Joint& joint, const Call& call);

}  // namespace ttrace::builtin
