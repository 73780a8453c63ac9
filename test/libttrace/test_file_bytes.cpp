// SPDX-License-Identifier: Apache-2.0
// Bytes of files by every way to them, and files that become shorter in the meantime.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/file_bytes.hpp"
#include "test/catch.hpp"

using namespace ttrace;

namespace {

constexpr std::size_t kSize = (std::size_t{3} << 20) + 1234;

std::byte byte_at(std::size_t at) { return static_cast<std::byte>((at * 2654435761u) >> 13); }

class TemporaryFile {
 public:
  TemporaryFile() {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-bytes-XXXXXX").string();
    const FileDescriptor file(mkstemp(name.data()));
    path = name;
    std::vector<char> bytes(kSize);
    for (std::size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<char>(byte_at(i));
    std::ofstream(path, std::ios::binary).write(bytes.data(), kSize);
  }
  ~TemporaryFile() { unlink(path.c_str()); }

  void leave_the_cache() const {
    const FileDescriptor file = open_file(path, O_RDWR);
    fsync(file.get());
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  void cut_to(std::size_t size) const {
    REQUIRE(truncate(path.c_str(), static_cast<off_t>(size)) == 0);
  }

  std::filesystem::path path;
};

bool holds(const std::byte* data, std::size_t offset, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] != byte_at(offset + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every way of reading gives the bytes of the file") {
  const TemporaryFile file;
  for (const ReadMode mode : {ReadMode::automatic, ReadMode::no_mmap}) {
    for (const bool cached : {true, false}) {
      if (!cached) file.leave_the_cache();
      const FileBytes bytes(file.path, mode);
      ReadBuffer buffer;
      for (const std::size_t offset : {0u, 1u, 4095u, 4096u, 1'000'003u}) {
        for (const std::size_t count :
             {std::size_t{1}, std::size_t{4096}, std::size_t{700'001}, kSize - offset}) {
          INFO(offset << " " << count << " " << cached);
          CHECK(holds(bytes.view(offset, count, buffer), offset, count));
          bytes.release(offset, count);
        }
      }
    }
  }
}

TEST_CASE("a view never leaves the file") {
  const TemporaryFile file;
  const FileBytes bytes(file.path, ReadMode::automatic);
  ReadBuffer buffer;
  CHECK_THROWS_AS(bytes.view(kSize - 1, 2, buffer), Trouble);
  CHECK_THROWS_AS(bytes.view(kSize + 1, 0, buffer), Trouble);
  CHECK_THROWS_AS(bytes.view(8, ~std::size_t{0}, buffer), Trouble);
}

TEST_CASE("a read of a file that became shorter is trouble") {
  const TemporaryFile file;
  const FileBytes bytes(file.path, ReadMode::no_mmap);
  file.cut_to(100'000);
  ReadBuffer buffer;
  CHECK(holds(bytes.view(0, 90'000, buffer), 0, 90'000));
  CHECK_THROWS_AS(bytes.view(0, 200'000, buffer), Trouble);
}

TEST_CASE("a file that another has replaced is not read for it") {
  const TemporaryFile file, other;
  const FileBytes bytes(file.path, ReadMode::no_mmap, Descriptors::on_demand);
  ReadBuffer buffer;
  CHECK(holds(bytes.view(5000, 9000, buffer), 5000, 9000));
  std::filesystem::copy_file(file.path, other.path,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::rename(other.path, file.path);
  try {
    (void)bytes.view(5000, 9000, buffer);
    FAIL("it was read");
  } catch (const Trouble& trouble) {
    CHECK(std::string(trouble.what()).find("another file") != std::string::npos);
  }
}

// Last, because what could not be read is told for good.
TEST_CASE("a mapped file that became shorter reads as zeros, and is trouble when asked for") {
  const TemporaryFile file;
  const MappedFile map(file.path);
  file.cut_to(8192);
  REQUIRE_NOTHROW(check_mapped_files());
  CHECK(holds(map.bytes().data(), 0, 8192));
  REQUIRE_NOTHROW(check_mapped_files());
  volatile const std::byte* beyond = map.bytes().data() + 2'000'000;
  CHECK(*beyond == std::byte{0});
  try {
    check_mapped_files();
    FAIL("it was not noticed");
  } catch (const Trouble& trouble) {
    CHECK(std::string(trouble.what()).find(file.path.string()) != std::string::npos);
  }
}
