// SPDX-License-Identifier: Apache-2.0
// Pieces of a file, by the quickest way to each: mapped where the page cache has it, else read past
// the cache, which costs less and leaves what the user has cached alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>

#include "libttrace/file.hpp"

namespace ttrace {

// Memory that a read past the cache can fill; kept from one to the next.
class ReadBuffer {
 public:
  [[nodiscard]] std::byte* of_size(std::size_t size);  // content is lost when it grows

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

enum class ReadMode : std::uint8_t { automatic, no_mmap };
// On demand: for files of which very many may be open.
enum class Descriptors : std::uint8_t { kept, on_demand };

// How the mapping will be read from now on: here and there, for which the kernel need not read what
// is around, or in order.
enum class Access : std::uint8_t { samples, in_order };

class FileBytes {
 public:
  // Throws Trouble, as view does.
  FileBytes(const std::filesystem::path& path, ReadMode mode,
            Descriptors descriptors = Descriptors::kept);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const FileIdentity& identity() const { return identity_; }
  // All of it; empty where it is not mapped.
  [[nodiscard]] std::span<const std::byte> mapped() const { return map_.bytes(); }
  // `count` bytes from `offset` on: in the mapping, or in `buffer`. Valid until release, or the
  // next use of the buffer. Called from several threads.
  [[nodiscard]] const std::byte* view(std::uint64_t offset, std::size_t count,
                                      ReadBuffer& buffer) const;
  void expect(Access access) const;
  // Lets the pages go.
  void release(std::uint64_t offset, std::size_t count) const;
  // Whether these bytes are in the page cache. True where the system does not tell, and for what is
  // too little to be read past it.
  [[nodiscard]] bool resident(std::uint64_t offset, std::size_t count) const;

 private:
  const std::byte* read(int file, std::uint64_t offset, std::size_t count,
                        ReadBuffer& buffer) const;
  const std::byte* read_direct(std::uint64_t offset, std::size_t count, ReadBuffer& buffer) const;
  [[nodiscard]] FileDescriptor reopen(int flags) const;
  [[nodiscard]] FileDescriptor open_direct() const;

  std::filesystem::path path_;
  FileIdentity identity_;
  std::uint64_t size_ = 0;
  MappedFile map_;
  // The second is opened past the cache; invalid where the file system cannot, and on demand.
  FileDescriptor file_, direct_;
  mutable std::atomic<bool> direct_works_{true};
};

}  // namespace ttrace
