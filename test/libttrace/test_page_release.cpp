// SPDX-License-Identifier: Apache-2.0
// Which pages go, and when. Private pages without a file read as zeros once they are gone.
#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "libttrace/page_release.hpp"
#include "test/catch.hpp"

using namespace ttrace;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class Pages {
 public:
  explicit Pages(std::size_t size) : size_(size) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    std::memset(data_, 1, size);
  }
  ~Pages() {
    forget_pages(data_);
    munmap(data_, size_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void release(std::size_t begin, std::size_t end) const {
    release_pages(data_, data_ + begin, data_ + end);
  }
  void forget() const { forget_pages(data_); }
  // Of the pages in [begin, end), all or none.
  [[nodiscard]] bool gone(std::size_t begin, std::size_t end) const { return all(begin, end, 0); }
  [[nodiscard]] bool there(std::size_t begin, std::size_t end) const { return all(begin, end, 1); }

 private:
  [[nodiscard]] bool all(std::size_t begin, std::size_t end, int value) const {
    for (std::size_t i = begin; i < end; ++i) {
      if (data_[i] != std::byte(value)) return false;
    }
    return true;
  }
  std::size_t size_;
  std::byte* data_ = nullptr;
};

}  // namespace

TEST_CASE("neighbours go together, once they are 2 MiB") {
  const Pages pages(4 * kMiB);
  for (std::size_t begin = 0; begin < 2 * kMiB - kMiB / 4; begin += kMiB / 4) {
    pages.release(begin, begin + kMiB / 4);
  }
  CHECK(pages.there(0, 4 * kMiB));
  pages.release(2 * kMiB - kMiB / 4, 2 * kMiB);
  CHECK(pages.gone(0, 2 * kMiB));
  CHECK(pages.there(2 * kMiB, 4 * kMiB));
}

TEST_CASE("pieces that come in any order, with little between them, go together") {
  const Pages pages(4 * kMiB);
  pages.release(3 * kMiB / 2, 2 * kMiB);
  pages.release(0, kMiB / 2);
  pages.release(kMiB / 2 + kMiB / 8, 3 * kMiB / 2 - kMiB / 8);
  CHECK(pages.there(2 * kMiB, 4 * kMiB));
  pages.release(2 * kMiB, 5 * kMiB / 2);
  pages.release(kMiB / 2, kMiB);
  CHECK(pages.gone(kMiB, 2 * kMiB));
  CHECK(pages.there(5 * kMiB / 2, 4 * kMiB));
}

TEST_CASE("few MiB wait, the oldest go first") {
  const Pages pages(32 * kMiB);
  for (std::size_t piece = 0; piece < 12; ++piece) {
    pages.release(2 * piece * kMiB, (2 * piece + 1) * kMiB);
  }
  CHECK(pages.there(0, 32 * kMiB));
  pages.release(24 * kMiB, 25 * kMiB);
  CHECK(pages.gone(0, kMiB));
  CHECK(pages.there(kMiB, 32 * kMiB));
}

TEST_CASE("what was forgotten does not go") {
  const Pages pages(4 * kMiB);
  pages.release(0, kMiB);
  pages.forget();
  pages.release(kMiB, 2 * kMiB);
  pages.release(2 * kMiB, 2 * kMiB + kMiB / 2);
  CHECK(pages.there(0, 4 * kMiB));
}

TEST_CASE("pages of two mappings do not go together") {
  const Pages one(2 * kMiB), two(2 * kMiB);
  one.release(0, kMiB + kMiB / 2);
  two.release(0, kMiB + kMiB / 2);
  CHECK(one.there(0, 2 * kMiB));
  CHECK(two.there(0, 2 * kMiB));
}
