// SPDX-License-Identifier: Apache-2.0
// A collective call, or a send or receive, as one rank made it (docs/format.md, /collectives).
#pragma once

#include <cstdint>
#include <string>

#include "libttrace/core/dtype.hpp"

namespace ttrace {

// Bits of Collective::flags; part of the file format and of the C ABI, append only.
inline constexpr std::uint32_t kCollectiveInPlace = 1u << 0;
inline constexpr std::uint32_t kCollectiveAsynchronous = 1u << 1;
inline constexpr std::uint32_t kCollectiveInGroup = 1u << 2;
inline constexpr std::uint32_t kCollectiveFailed = 1u << 3;
inline constexpr std::uint32_t kCollectiveBegun = 1u << 4;

inline constexpr std::int64_t kNotRecorded = -1;

struct Collective {
  std::string function;        // "all_reduce", ...
  std::string reduction;       // "sum", ...; "": none
  std::string group;           // equal on all members
  std::string module;          // that issued it; "": unknown
  std::string input_splits;    // "3,5": elements for each member; "": equal
  std::string output_splits;   // elements from each member
  std::uint64_t sequence = 0;  // n-th call of this rank on that group since it was created
  std::uint64_t count = 0;     // elements, as the API counts them
  std::uint64_t position = 0;  // records of the segment before the call
  double factor = 1;           // of a premul_sum
  std::int32_t member = 0;     // own number in the group
  std::int32_t size = 0;       // of the group
  std::int32_t peer = -1;      // number of the root, or of the other side
  std::int32_t microbatch = -1;
  std::uint32_t flags = 0;
  DType dtype = DType::float32;
  std::int64_t input = kNotRecorded;   // sequence of the record of what went in
  std::int64_t output = kNotRecorded;  // and of what came out
};

// A call that had not ended when the recording did.
struct RunningCall {
  std::string group;
  std::int32_t member = 0;
  std::uint64_t sequence = 0;
  double seconds = 0;  // since it began
};

}  // namespace ttrace
