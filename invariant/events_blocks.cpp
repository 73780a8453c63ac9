// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_blocks.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

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
    place_ = offset_;
    number_ = taken_ + 1;
    if (end_ - begin_ < kBlockBytes) {
      if (!fill()) return false;
      continue;
    }
    const char* const head = buffer_.data() + begin_;
    const auto kind = number_at<std::uint32_t>(head + 4);
    const auto size = number_at<std::uint32_t>(head + 8);
    if (std::string_view(head, kMagic.size()) != kMagic || size > kMostBytes) {
      damaged("does not begin as a block does");
    }
    if (end_ - begin_ - kBlockBytes < size) {
      if (!fill()) return false;
      continue;
    }
    if (!is_whole(begin_)) damaged("has another checksum than its content");
    const char* const payload = head + kBlockBytes;
    take(kBlockBytes + size);
    ++taken_;
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
  take(kHeaderBytes);
  return opened_ = true;
}

void EventBlocks::take(std::size_t bytes) {
  begin_ += bytes;
  offset_ += bytes;
}

void EventBlocks::damaged(const std::string& why) const {
  throw Trouble("damaged trace", path_.string(),
                "block " + std::to_string(number_) + " at byte " + std::to_string(place_) + " " +
                    why + "; copy the file again from where the run was, or record it again");
}

// Whether there is a block at this place of the buffer, checksum included.
bool EventBlocks::is_whole(std::size_t place) const {
  if (end_ - place < kBlockBytes) return false;
  const char* const head = buffer_.data() + place;
  const auto size = number_at<std::uint32_t>(head + 8);
  if (end_ - place - kBlockBytes < size) return false;
  const uLong check = crc32(0, reinterpret_cast<const Bytef*>(head + kBlockBytes), size);
  return check == number_at<std::uint32_t>(head + 12);
}

// A block that is not whole is the last one, unless it is its length that is damaged.
bool EventBlocks::cut() const {
  const std::string_view left(buffer_.data(), end_);
  for (std::size_t place = begin_; (place = left.find(kMagic, place + 1)) != left.npos;) {
    if (is_whole(place)) damaged("is said to be longer than it is");
  }
  return end_ > begin_;
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
