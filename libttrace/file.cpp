// SPDX-License-Identifier: Apache-2.0
// System calls, each with its error checked in the one place that knows the file's name.
#include "libttrace/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/page_release.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

std::string words(int error) { return std::generic_category().message(error); }

std::uint64_t size_of_file(const FileDescriptor& file, const fs::path& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw system_trouble("cannot read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Trouble("cannot read", path.string(), "it is not a regular file");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string advice_if_full(const std::string& reason) {
  for (const int error : {ENOSPC, EDQUOT}) {
    if (reason.find(words(error)) != std::string::npos) {
      return "; free some space, or capture less (fewer iterations or modules, statistics only)";
    }
  }
  return "";
}

Trouble system_trouble(const std::string& what, const fs::path& where, int error) {
  return {what, where.string(), words(error) + advice_if_full(words(error))};
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset() {
  if (fd_ >= 0) close(release());
}

FileIdentity identity_of(int descriptor, const fs::path& path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw system_trouble("cannot read", path, errno);
  return {status.st_dev, status.st_ino};
}

FileDescriptor open_file(const fs::path& path, int flags) {
  for (;;) {
    FileDescriptor file(open(path.c_str(), flags | O_CLOEXEC, 0666));
    if (file.valid()) return file;
    if (errno != EINTR) throw system_trouble("cannot open", path, errno);
  }
}

void write_at(const FileDescriptor& file, std::span<const std::byte> bytes, std::uint64_t offset,
              const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw system_trouble("cannot write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void sync_and_rename(const FileDescriptor& file, const fs::path& from, const fs::path& to) {
  if (fsync(file.get()) != 0) throw system_trouble("cannot write", from, errno);
  if (rename(from.c_str(), to.c_str()) != 0) throw system_trouble("cannot rename", from, errno);
  const FileDescriptor directory = open_file(directory_of(to), O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync a directory; the content itself is safe by now.
  if (fsync(directory.get()) != 0 && errno != EINVAL)
    throw system_trouble("cannot write", to, errno);
}

std::string read_text(const fs::path& path) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  std::string text(size_of_file(file, path), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(file.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_trouble("cannot read", path, errno);
    if (got == 0) break;  // it became shorter since
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

void MappedFile::map(int file, std::uint64_t size, int protection) {
  if (size == 0) return;  // cannot be mapped, and need not be
  void* data = mmap(nullptr, size, protection, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) throw system_trouble("cannot map", path_, errno);
  data_ = static_cast<std::byte*>(data);
  size_ = size;
  watch_mapping(data_, size_, path_);
}

MappedFile::MappedFile(const fs::path& path) : MappedFile(path, open_file(path, O_RDONLY)) {}

MappedFile::MappedFile(const fs::path& path, const FileDescriptor& file) : path_(path) {
  map(file.get(), size_of_file(file, path), PROT_READ);
}

MappedFile MappedFile::scratch(std::uint64_t size) {
  std::string name = (fs::temp_directory_path() / "ttrace-XXXXXX").string();
  FileDescriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid()) throw system_trouble("cannot create a temporary file", name, errno);
  unlink(name.c_str());
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
    throw system_trouble("cannot create a temporary file", name, errno);
  }
  MappedFile made;
  made.path_ = name;
  made.file_ = std::move(file);
  made.map(made.file_.get(), size, PROT_READ | PROT_WRITE);
  return made;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  forget_pages(data_);
  munmap(data_, size_);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  swap(other);
  return *this;
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

void MappedFile::reserve(std::uint64_t offset, std::uint64_t count) const {
  // Touching a page that the disk has no room for would be a signal instead of an error.
  const int error =
      posix_fallocate(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(count));
  if (error != 0) throw system_trouble("cannot write a temporary file", path_, error);
}

void MappedFile::release(std::span<const std::byte> view) const {
  if (view.empty()) return;
  release_pages(data_, view.data(), view.data() + view.size());
}

DiskReserve::DiskReserve(const fs::path& directory)
    : directory_(directory.empty() ? "." : directory),
      file_(open(directory_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)) {}

void DiskReserve::grow_to(std::uint64_t bytes) {
  if (!file_.valid() || bytes <= size_) return;
  if (fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) {
    size_ = bytes;
  } else if (errno == ENOSPC || errno == EDQUOT) {
    throw system_trouble("cannot write", directory_, errno);
  } else {
    release();  // this file system cannot allocate ahead
  }
}

}  // namespace ttrace
