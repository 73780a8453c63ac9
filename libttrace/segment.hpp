// SPDX-License-Identifier: Apache-2.0
// A segment is one HDF5 file: all records of one rank in one iteration (docs/format.md).
// The writer streams payloads of any size through a few pages; the reader maps the file and reads
// /index, never opening a dataset per tensor. libhdf5 is only included by the .cpp files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libttrace/core/collective.hpp"
#include "libttrace/core/record.hpp"
#include "libttrace/file_bytes.hpp"

namespace ttrace {

inline constexpr int kSegmentVersion = 1;

struct SegmentInfo {
  std::string run_id;
  std::int32_t rank = 0;
  std::int64_t iteration = 0;
  bool complete = true;  // false: the rank died before it ended the iteration
};

class SegmentWriter {
 public:
  // Creates `path` + ".part". Throws Trouble (disk full, no permission, ...), as all members do.
  SegmentWriter(std::filesystem::path path, SegmentInfo info);
  ~SegmentWriter();  // closes with complete = false when close() was not called
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // One record: begin, append its bytes in pieces of any size, commit. begin takes key, dtype,
  // kind, shape, alias_of, flags, raw_name and bytes from `record`, and the layout's JSON text (""
  // = none); the writer computes sequence, offset, hash and statistics. Returns the sequence. A key
  // that this segment already holds gets the next free call number.
  std::uint64_t begin(const Record& record, const std::string& layout_json);
  void append(std::span<const std::byte> bytes);
  void commit();   // Throws Trouble when fewer or more bytes came than announced.
  void abandon();  // forgets the record in flight, as if begin had not been called

  // A call that was made when `collective.position` records were there. Throws Trouble when it
  // refers to a record that was not committed.
  // Returns its row.
  std::size_t add_collective(const Collective& collective);
  // What is known of it now.
  void change_collective(std::size_t row, const Collective& collective);

  [[nodiscard]] std::uint64_t record_count() const;
  // Writes /index, /names, /layouts, /collectives, syncs and renames ".part" away. A record in
  // flight is abandoned, and the segment is then not complete. After a full disk, abandon() and
  // close(false) keep what was committed.
  void close(bool complete);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class SegmentReader {
 public:
  // Throws Trouble that names the file: not HDF5, not a ttrace segment, a newer major version,
  // truncated, an index that does not match the file.
  explicit SegmentReader(std::filesystem::path path, ReadMode mode = ReadMode::automatic);
  ~SegmentReader();
  SegmentReader(SegmentReader&&) noexcept;
  SegmentReader& operator=(SegmentReader&&) noexcept;

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] const SegmentInfo& info() const;
  [[nodiscard]] const std::vector<Record>& records() const;       // index = sequence
  [[nodiscard]] const std::vector<std::string>& layouts() const;  // JSON texts
  // In the order of the calls; read on first use. Throws Trouble when the table is damaged.
  [[nodiscard]] const std::vector<Collective>& collectives() const;

  // The packed bytes of a record of kind full (an alias yields its target's). The view is backed by
  // the mapped file, or by a temporary copy where that is not to be mapped, and valid while the
  // reader lives. Throws Trouble for kinds without bytes.
  [[nodiscard]] std::span<const std::byte> bytes(const Record& record) const;
  // Lets the pages of `view` go, so that resident memory stays bounded on large tensors.
  void release(std::span<const std::byte> view) const;

  // `count` of these bytes from `offset` on, for who reads them once, in order: past the page cache
  // where that does not have them. Valid until release, or the next use of the buffer.
  [[nodiscard]] const std::byte* view(const Record& record, std::uint64_t offset, std::size_t count,
                                      ReadBuffer& buffer) const;
  void release(const Record& record, std::uint64_t offset, std::size_t count) const;
  void expect(Access access) const;
  // Whether they are in the page cache.
  [[nodiscard]] bool resident(const Record& record, std::uint64_t offset, std::size_t count) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace
