// SPDX-License-Identifier: Apache-2.0
// A segment that another tool rewrote (h5repack, h5copy): the index is right but its offsets are
// not, and datasets may be compressed. Payloads are then read through libhdf5, each once, into an
// unnamed temporary file, so that memory stays bounded and views stay valid as in a mapped segment.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "libttrace/core/record.hpp"
#include "libttrace/file.hpp"
#include "libttrace/h5.hpp"

namespace ttrace {

[[nodiscard]] inline bool has_payload(const Record& record) {
  return record.kind == RecordKind::full && record.alias_of == kNotAlias && record.bytes != 0;
}

// True when the datasets of a few records lie where the index says. Throws Trouble when one of
// them does not exist.
[[nodiscard]] bool offsets_hold(const h5::Caller& caller, h5::Id file,
                                const std::vector<Record>& records);

class RepackedPayloads {
 public:
  RepackedPayloads(h5::Caller caller, h5::Handle file, const std::vector<Record>& records);
  ~RepackedPayloads();

  [[nodiscard]] std::span<const std::byte> bytes(const Record& record);
  void release(std::span<const std::byte> view) const { scratch_.release(view); }

 private:
  void read(const Record& record, std::span<std::byte> out) const;

  h5::Caller caller_;
  h5::Handle file_;
  std::vector<std::uint64_t> offsets_;  // in the temporary file, by sequence
  std::vector<bool> present_;
  MappedFile scratch_;
  std::mutex mutex_;
};

}  // namespace ttrace
