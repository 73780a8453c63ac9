// SPDX-License-Identifier: Apache-2.0
// What no comparison of two files can beat, and what opening datasets costs, in seconds; the least
// of several passes, after a first one that is not counted.
//   diff_limits memory A B   both in memory, all cores: a loop that only reads
//   diff_limits direct A B   both read from the disk, past the cache, one after the other
//   diff_limits open A B     each dataset of both root groups opened and closed
#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;

double seconds_of(const std::function<void()>& pass) {
  const auto begin = std::chrono::steady_clock::now();
  pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double least_of(int passes, const std::function<void()>& pass) {
  double least = 1e9;
  for (int i = 0; i <= passes; ++i) {
    const double took = seconds_of(pass);
    if (i > 0) least = std::min(least, took);
  }
  return least;
}

[[noreturn]] void fail(const char* path) {
  std::perror(path);
  std::exit(2);
}

std::size_t size_of_file(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) fail(path);
  return static_cast<std::size_t>(status.st_size);
}

// Reads the file in pieces; into `memory` one after another, or into one place again and again.
std::size_t read_file(const char* path, int flags, std::byte* memory, bool advance) {
  const int file = open(path, O_RDONLY | flags);
  if (file < 0) fail(path);
  std::size_t done = 0;
  for (;;) {
    const ssize_t got = read(file, memory + (advance ? done : 0), kPiece);
    if (got < 0) fail(path);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  close(file);
  return done;
}

using Memory = std::unique_ptr<std::byte, void (*)(void*)>;

Memory allocate(std::size_t size) {
  const std::size_t rounded = (size + 2 * kPiece) / kPiece * kPiece;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kPiece, rounded)), std::free);
  if (!memory) fail("memory");
  std::memset(memory.get(), 1, rounded);
  return memory;
}

std::uint64_t sum(const std::byte* left, const std::byte* right, std::size_t size) {
  std::uint64_t lanes[16] = {};
  for (std::size_t at = 0; at + 128 <= size; at += 128) {
    std::uint64_t one[16], other[16];
    std::memcpy(one, left + at, sizeof one);
    std::memcpy(other, right + at, sizeof other);
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += one[lane] ^ other[lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

double memory_pass(const char* left, const char* right) {
  const std::size_t size = std::min(size_of_file(left), size_of_file(right));
  const Memory one = allocate(size), other = allocate(size);
  read_file(left, 0, one.get(), true);
  read_file(right, 0, other.get(), true);
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::uint64_t> sums(threads);
  const double seconds = least_of(5, [&] {
    std::vector<std::thread> crew;
    for (unsigned i = 0; i < threads; ++i) {
      crew.emplace_back([&, i] {
        const std::size_t begin = size / threads * i / 128 * 128;
        const std::size_t end = i + 1 == threads ? size : size / threads * (i + 1) / 128 * 128;
        sums[i] += sum(one.get() + begin, other.get() + begin, end - begin);
      });
    }
    for (std::thread& thread : crew) thread.join();
  });
  std::uint64_t total = 0;
  for (const std::uint64_t part : sums) total += part;
  std::fprintf(stderr, "%llu\n", static_cast<unsigned long long>(total));  // nothing was left out
  return seconds;
}

double direct_pass(const char* left, const char* right) {
  const Memory memory = allocate(kPiece);
  return seconds_of([&] {  // one pass, as those it is compared with
    read_file(left, O_DIRECT, memory.get(), false);
    read_file(right, O_DIRECT, memory.get(), false);
  });
}

herr_t open_one(hid_t group, const char* name, const H5L_info_t*, void*) {
  const hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
  return dataset < 0 ? -1 : H5Dclose(dataset);
}

double open_pass(const char* left, const char* right) {
  return seconds_of([&] {
    for (const char* path : {left, right}) {
      const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
      if (H5Literate(file, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, open_one, nullptr) < 0)
        fail(path);
      H5Fclose(file);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 4 ? argv[1] : "";
  if (what == "memory") {
    std::printf("%.6f\n", memory_pass(argv[2], argv[3]));
  } else if (what == "direct") {
    std::printf("%.6f\n", direct_pass(argv[2], argv[3]));
  } else if (what == "open") {
    std::printf("%.6f\n", open_pass(argv[2], argv[3]));
  } else {
    std::fputs("usage: diff_limits memory|direct|open A B\n", stderr);
    return 2;
  }
}
