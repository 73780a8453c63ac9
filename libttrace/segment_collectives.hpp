// SPDX-License-Identifier: Apache-2.0
// The rows of /collectives. The table is there only when a collective was recorded; its texts are
// rows of /names, so it is written after all of them are known and before the index is. Only for
// the segment's writer and reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libttrace/core/collective.hpp"
#include "libttrace/h5.hpp"
#include "libttrace/segment_index.hpp"

namespace ttrace {

// One row, as it is in the file: without padding.
struct [[gnu::packed]] CollectiveRow {
  std::int32_t group = -1;  // rows of /names, -1: none
  std::int32_t function = -1;
  std::int32_t reduction = -1;
  std::int32_t module = -1;
  std::int32_t input_splits = -1;
  std::int32_t output_splits = -1;
  std::uint64_t sequence = 0;
  std::int32_t member = 0;
  std::int32_t size = 0;
  std::int32_t peer = -1;
  std::int32_t microbatch = -1;
  std::uint8_t dtype = 0;
  std::uint32_t flags = 0;
  std::uint64_t count = 0;
  double factor = 1;
  std::int64_t input = kNotRecorded;  // rows of /index
  std::int64_t output = kNotRecorded;
  std::uint64_t position = 0;
};

// What is wrong with it in a segment of that many records, or "".
[[nodiscard]] std::string problem_of(const Collective& collective, std::uint64_t records);

[[nodiscard]] CollectiveRow row_of(const Collective& collective, StringTable& names);

// Does nothing when there are none.
void write_collectives(const h5::Caller& caller, h5::Id file,
                       const std::vector<CollectiveRow>& rows);

// Throws Trouble on a row that refers to nothing. `records`: how many rows /index has.
[[nodiscard]] std::vector<Collective> read_collectives(const h5::Caller& caller, h5::Id file,
                                                       std::uint64_t records);

}  // namespace ttrace
