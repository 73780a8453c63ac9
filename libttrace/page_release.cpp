// SPDX-License-Identifier: Apache-2.0
// See page_release.hpp.
#include "libttrace/page_release.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ttrace {
namespace {

constexpr std::uintptr_t kTogether = std::uintptr_t{2} << 20;
constexpr std::uintptr_t kMostWaiting = std::uintptr_t{12} << 20;
constexpr std::uintptr_t kGap = std::uintptr_t{256} << 10;  // what is between goes, too

struct Range {
  const std::byte* mapping;  // what lies between two mappings is not ours
  std::uintptr_t begin, end;
  [[nodiscard]] std::uintptr_t size() const { return end - begin; }
};

class Waiting {
 public:
  void add(Range range) {
    const std::lock_guard lock(mutex_);
    for (auto near = near_to(range); near != ranges_.end(); near = near_to(range)) {
      waiting_ -= near->size();
      range = {range.mapping, std::min(range.begin, near->begin), std::max(range.end, near->end)};
      ranges_.erase(near);
    }
    ranges_.push_back(range);
    waiting_ += range.size();
    if (range.size() >= kTogether) release(ranges_.end() - 1);
    while (waiting_ > kMostWaiting) release(ranges_.begin());
  }

  void forget(const std::byte* mapping) {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_, [&](const Range& range) {
      if (range.mapping == mapping) waiting_ -= range.size();
      return range.mapping == mapping;
    });
  }

 private:
  std::vector<Range>::iterator near_to(const Range& range) {
    return std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& other) {
      return range.mapping == other.mapping && range.begin <= other.end + kGap &&
             other.begin <= range.end + kGap;
    });
  }

  void release(std::vector<Range>::iterator range) {
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    // Rounded outwards: neighbours that share a page fault it in again.
    const std::uintptr_t begin = range->begin / page * page;
    madvise(reinterpret_cast<void*>(begin), range->end - begin, MADV_DONTNEED);
    waiting_ -= range->size();
    ranges_.erase(range);
  }

  std::mutex mutex_;
  std::vector<Range> ranges_;  // the longest waiting first
  std::uintptr_t waiting_ = 0;
};

Waiting waiting;

}  // namespace

void release_pages(const std::byte* mapping, const std::byte* begin, const std::byte* end) {
  waiting.add(
      {mapping, reinterpret_cast<std::uintptr_t>(begin), reinterpret_cast<std::uintptr_t>(end)});
}

void forget_pages(const std::byte* mapping) { waiting.forget(mapping); }

}  // namespace ttrace
