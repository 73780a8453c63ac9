// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_blocks.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace ttrace::invariant {

namespace {

constexpr std::string_view kHeader = "TTREVENT";
constexpr std::size_t kHeaderBytes = 16;
constexpr std::uint32_t kVersion = 1;
constexpr std::string_view kMagic = "TTEB";
constexpr std::size_t kBlockBytes = 24;         // in front of the payload
constexpr std::uint32_t kMostBytes = 1U << 30;  // of a payload; more is damage
constexpr std::size_t kChunk = std::size_t{1} << 18;

template <class Number>
Number number_at(const char* bytes) {
  Number number{};
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

}  // namespace

EventBlocks::EventBlocks(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, O_RDONLY | O_CLOEXEC)), buffer_(kChunk) {}

bool EventBlocks::next(Block& block) {
  while (opened_ || read_header()) {
    if (lost_ && !resume()) return false;
    if (end_ - begin_ < kBlockBytes) {
      if (!fill()) return false;
      continue;
    }
    const char* const head = buffer_.data() + begin_;
    const auto kind = number_at<std::uint32_t>(head + 4);
    const auto size = number_at<std::uint32_t>(head + 8);
    if (std::string_view(head, kMagic.size()) != kMagic || size > kMostBytes) {
      lose();
      continue;
    }
    if (end_ - begin_ - kBlockBytes < size) {
      if (!fill()) return false;
      continue;
    }
    const char* const payload = head + kBlockBytes;
    const uLong check = crc32(0, reinterpret_cast<const Bytef*>(payload), size);
    if (check != number_at<std::uint32_t>(head + 12)) {
      lose();
      continue;
    }
    begin_ += kBlockBytes + size;
    if (kind > static_cast<std::uint32_t>(BlockKind::rows)) continue;  // of a later ttrace
    block = {static_cast<BlockKind>(kind), number_at<std::uint64_t>(head + 16), {payload, size}};
    return true;
  }
  return false;
}

bool EventBlocks::read_header() {
  while (end_ - begin_ < kHeaderBytes) {
    if (!fill()) return false;
  }
  const char* const head = buffer_.data() + begin_;
  if (std::string_view(head, kHeader.size()) != kHeader) {
    throw Trouble("cannot read", path_.string(),
                  "is no file of events, ttrace-capture --events "
                  "writes them");
  }
  if (const auto version = number_at<std::uint32_t>(head + 8); version > kVersion) {
    throw Trouble("cannot read", path_.string(),
                  "has version " + std::to_string(version) + ", this ttrace knows " +
                      std::to_string(kVersion) + ", use the ttrace that wrote it or a newer one");
  }
  begin_ += kHeaderBytes;
  return opened_ = true;
}

// What lies in front is no block.
void EventBlocks::lose() {
  ++begin_;
  ++damaged_;
  lost_ = true;
}

bool EventBlocks::resume() {
  for (;;) {
    const std::string_view left(buffer_.data() + begin_, end_ - begin_);
    const std::size_t found = left.find(kMagic);
    if (found != std::string_view::npos) {
      begin_ += found;
      lost_ = false;
      return true;
    }
    begin_ = std::max(begin_, end_ - std::min(end_, kMagic.size() - 1));
    if (!fill()) return false;
  }
}

bool EventBlocks::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ * 2 > buffer_.size()) buffer_.resize(buffer_.size() * 2);
  for (;;) {
    const ssize_t count = read(file_.get(), buffer_.data() + end_, buffer_.size() - end_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_trouble("cannot read", path_, errno);
    end_ += static_cast<std::size_t>(count);
    return count > 0;
  }
}

}  // namespace ttrace::invariant
