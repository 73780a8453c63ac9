// SPDX-License-Identifier: Apache-2.0
// Files of the operating system as values that close themselves; failures are Trouble with the
// system's own words, and a full disk says what to do about it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "libttrace/core/trouble.hpp"

namespace ttrace {

// "<what>: <where>: No space left on device; free some space, ..."
[[nodiscard]] Trouble system_trouble(const std::string& what, const std::filesystem::path& where,
                                     int error);
// What to do when `reason` (strerror's words, perhaps inside a longer text) says that the disk or
// the quota is full; else "".
[[nodiscard]] std::string advice_if_full(const std::string& reason);

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release();
  void reset();

 private:
  int fd_ = -1;
};

// Which file it is, by whatever name.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};
[[nodiscard]] FileIdentity identity_of(int descriptor, const std::filesystem::path& path);

[[nodiscard]] FileDescriptor open_file(const std::filesystem::path& path, int flags);
void write_at(const FileDescriptor& file, std::span<const std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& path);
// Makes content and name durable: syncs `file`, renames `from` to `to`, syncs the directory.
void sync_and_rename(const FileDescriptor& file, const std::filesystem::path& from,
                     const std::filesystem::path& to);
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

// A whole file in memory, page by page as it is touched.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);  // read only
  // The same of a file that is open. The mapping needs no descriptor, and traces have many
  // segments.
  MappedFile(const std::filesystem::path& path, const FileDescriptor& file);
  // `size` writable bytes in a temporary file that has no name and goes away with the mapping.
  // Disk space comes with reserve(), before the bytes are touched.
  static MappedFile scratch(std::uint64_t size);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::span<std::byte> writable() { return {data_, size_}; }  // of a scratch file
  void reserve(std::uint64_t offset, std::uint64_t count) const;
  // Lets the pages of `view`, a part of bytes(), go; they come back when they are touched.
  void release(std::span<const std::byte> view) const;

 private:
  void map(int file, std::uint64_t size, int protection);
  void swap(MappedFile& other) noexcept;

  std::filesystem::path path_;
  FileDescriptor file_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Disk space set aside, so that a file can still be finished when the disk is full. Holds what the
// file system can promise: nothing where it knows no unnamed files or no allocation.
class DiskReserve {
 public:
  explicit DiskReserve(const std::filesystem::path& directory);
  // Throws Trouble when the disk has not that much left.
  void grow_to(std::uint64_t bytes);
  void release() { file_.reset(); }

 private:
  std::filesystem::path directory_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace ttrace
