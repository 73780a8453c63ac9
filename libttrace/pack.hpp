// SPDX-License-Identifier: Apache-2.0
// A pack is a flat file of named tensors that a traced process can map with nothing but a JSON
// parser: no HDF5 inside a training process. docs/format.md describes it:
//   "TTRACEPK"  u64 length of the index  the index, one line of JSON  zeros to a multiple of 64
//   payloads, each at a multiple of 64 from there on
// The index:
// {"format":"ttrace-pack","version":1,"tensors":{NAME:{"dtype","shape","offset","bytes","scale"}},
// "replay":{...}} where offset counts from the first payload, so that it does not depend on the
// index's length. Several names may have one payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "libttrace/core/record.hpp"

namespace ttrace {

inline constexpr std::size_t kOwnPayload = ~std::size_t{0};

struct PackEntry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t offset = 0;  // from the first payload
  double scale = 1;          // a reader multiplies the elements by it
  std::size_t same_as = kOwnPayload;  // index of an earlier entry whose payload this one has, too
  [[nodiscard]] std::uint64_t bytes() const { return element_count(shape) * size_of(dtype); }
};

// Writes PATH + ".part" and renames it when all is there: a reader never sees half a pack.
class PackWriter {
 public:
  // The offsets of `entries` are assigned here; `replay` is the JSON object of that name, if any.
  // Throws Trouble, as all members do.
  PackWriter(std::filesystem::path path, std::vector<PackEntry> entries,
             const std::string& replay = "");
  ~PackWriter();  // removes the ".part" when close() was not called
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // Bytes [at, at + bytes.size()) of the payload of entry `index`.
  void write(std::size_t index, std::uint64_t at, std::span<const std::byte> bytes);
  void close();

 private:
  void discard();

  std::filesystem::path path_;
  std::filesystem::path part_;
  std::vector<PackEntry> entries_;
  std::uint64_t payloads_ = 0;  // position of the first payload in the file
  int fd_ = -1;
};

// The whole file, mapped.
class PackReader {
 public:
  explicit PackReader(const std::filesystem::path& path);
  ~PackReader();
  PackReader(const PackReader&) = delete;
  PackReader& operator=(const PackReader&) = delete;

  [[nodiscard]] const std::vector<PackEntry>& entries() const { return entries_; }  // by name
  [[nodiscard]] std::span<const std::byte> bytes(const PackEntry& entry) const;
  [[nodiscard]] const std::string& replay() const { return replay_; }  // as JSON; "" without

 private:
  std::vector<PackEntry> entries_;
  std::string replay_;
  const std::byte* file_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t payloads_ = 0;
};

}  // namespace ttrace
