// SPDX-License-Identifier: Apache-2.0
// Payloads that cannot be mapped where they are: each is copied, once, into an unnamed temporary
// file, so that memory stays bounded and views stay valid as in a mapped segment. That is so when
// another tool rewrote a segment (h5repack, h5copy): the index is right but its offsets are not,
// and datasets may be compressed. Then libhdf5 reads them.
#pragma once

#include <cstddef>
#include <functional>
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

class CopiedPayloads {
 public:
  using Reader = std::function<void(const Record& record, std::span<std::byte> out)>;
  CopiedPayloads(const std::vector<Record>& records, Reader read);

  [[nodiscard]] std::span<const std::byte> bytes(const Record& record);
  void release(std::span<const std::byte> view) const { scratch_.release(view); }

 private:
  Reader read_;
  std::vector<std::uint64_t> offsets_;  // in the temporary file, by sequence
  std::vector<bool> present_;
  MappedFile scratch_;
  std::mutex mutex_;
};

// Reads payloads through libhdf5.
[[nodiscard]] CopiedPayloads::Reader repacked_reader(h5::Caller caller, h5::Handle file);

}  // namespace ttrace
