// SPDX-License-Identifier: Apache-2.0
// See file_bytes.hpp.
#include "libttrace/file_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

namespace ttrace {
namespace {

// What offsets, sizes and addresses of reads past the cache are multiples of, on any disk.
constexpr std::uint64_t kSector = 4096;
// A system call for less would cost more than the page faults it saves.
constexpr std::size_t kLeastDirect = 256 * 1024;

}  // namespace

std::byte* ReadBuffer::of_size(std::size_t size) {
  if (size <= size_) return data_.get();
  const std::size_t rounded = (size + kSector - 1) / kSector * kSector;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kSector, rounded)));
  if (!data_) throw std::bad_alloc();
  size_ = rounded;
  return data_.get();
}

FileBytes::FileBytes(const std::filesystem::path& path, ReadMode mode, Descriptors descriptors)
    : path_(path), file_(open_file(path, O_RDONLY)) {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) throw system_trouble("cannot read", path, errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = {status.st_dev, status.st_ino};
  const bool keep = descriptors == Descriptors::kept;
  if (mode == ReadMode::automatic) {
    map_ = MappedFile(path, file_);
    size_ = map_.bytes().size();
    if (keep) direct_ = open_direct();
    direct_works_ = !keep || direct_.valid();
  }
  if (!keep) file_.reset();
}

const std::byte* FileBytes::view(std::uint64_t offset, std::size_t count,
                                 ReadBuffer& buffer) const {
  if (offset > size_ || count > size_ - offset) {
    throw Trouble("cannot read", path_.string(),
                  "it is shorter than its own table of contents says");
  }
  const bool mapped = !map_.bytes().empty();
  // A few bytes are not worth the pages that a fault brings in.
  if (file_.valid() && (!mapped || count < kSector)) {
    return read(file_.get(), offset, count, buffer);
  }
  if (!mapped) return read(reopen(O_RDONLY).get(), offset, count, buffer);
  if (direct_works_.load(std::memory_order_relaxed) && !resident(offset, count)) {
    const std::byte* data = read_direct(offset, count, buffer);
    if (data != nullptr) return data;
    direct_works_ = false;
  }
  return map_.bytes().data() + offset;
}

// The same file again, not another that has taken its name.
FileDescriptor FileBytes::reopen(int flags) const {
  FileDescriptor file = open_file(path_, flags);
  if (identity_of(file.get(), path_) == identity_) return file;
  throw Trouble("cannot read", path_.string(),
                "another file has taken its place; try again when nothing writes there");
}

// Invalid: this file system has no reads past the cache, or another file has taken the name.
FileDescriptor FileBytes::open_direct() const {
  try {
    return reopen(O_RDONLY | O_DIRECT);
  } catch (const Trouble&) {
    return FileDescriptor();  // the mapping is still there
  }
}

// nullptr: this file system has no reads past the cache.
const std::byte* FileBytes::read_direct(std::uint64_t offset, std::size_t count,
                                        ReadBuffer& buffer) const {
  if (direct_.valid()) return read(direct_.get(), offset, count, buffer);
  const FileDescriptor file = open_direct();
  return file.valid() ? read(file.get(), offset, count, buffer) : nullptr;
}

// nullptr: `file` was opened past the cache, and the file system has no such reads.
const std::byte* FileBytes::read(int file, std::uint64_t offset, std::size_t count,
                                 ReadBuffer& buffer) const {
  const std::uint64_t begin = offset / kSector * kSector;
  const std::uint64_t end = (offset + count + kSector - 1) / kSector * kSector;
  std::byte* data = buffer.of_size(end - begin);
  const std::uint64_t needed = offset + count - begin;
  for (std::uint64_t done = 0; done < needed;) {
    const ssize_t got =
        pread(file, data + done, end - begin - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && !map_.bytes().empty()) return nullptr;
    if (got < 0) throw system_trouble("cannot read", path_, errno);
    if (got == 0) {
      throw Trouble("cannot read", path_.string(),
                    "it became shorter while it was read; try again when nothing writes to it");
    }
    done += static_cast<std::uint64_t>(got);
  }
  return data + (offset - begin);
}

void FileBytes::expect(Access access) const {
  if (map_.bytes().empty()) return;
  madvise(const_cast<std::byte*>(map_.bytes().data()), map_.bytes().size(),
          access == Access::samples ? MADV_RANDOM : MADV_NORMAL);
}

void FileBytes::release(std::uint64_t offset, std::size_t count) const {
  if (!map_.bytes().empty()) map_.release(map_.bytes().subspan(offset, count));
}

bool FileBytes::resident(std::uint64_t offset, std::size_t count) const {
  if (count < kLeastDirect || map_.bytes().empty() || offset + count > size_) return true;
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, 8> flags{};
  // A few places are enough: what is cached was read in larger pieces.
  const std::uint64_t first = offset / page, last = (offset + count - 1) / page;
  const std::uint64_t pages = std::min<std::uint64_t>(last - first + 1, flags.size());
  const std::byte* begin = map_.bytes().data() + (first + (last - first + 1 - pages) / 2) * page;
  if (mincore(const_cast<std::byte*>(begin), pages * page, flags.data()) != 0) return true;
  const auto count_resident = std::count_if(flags.begin(), flags.begin() + static_cast<long>(pages),
                                            [](unsigned char flag) { return (flag & 1u) != 0; });
  return 2 * static_cast<std::uint64_t>(count_resident) >= pages;
}

}  // namespace ttrace
