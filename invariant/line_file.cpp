// SPDX-License-Identifier: Apache-2.0
#include "invariant/line_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "invariant/traincheck_line.hpp"

namespace ttrace::invariant {

namespace {
constexpr std::size_t chunk = std::size_t{1} << 18;  // stays in a core's cache
}

LineFile::LineFile(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, O_RDONLY | O_CLOEXEC)), buffer_(chunk + line_padding) {}

bool LineFile::next(std::string_view& line) {
  for (;;) {
    const void* const found = std::memchr(buffer_.data() + searched_, '\n', end_ - searched_);
    if (found != nullptr) {
      const std::size_t stop =
          static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
      line = {buffer_.data() + begin_, stop - begin_};
      begin_ = searched_ = stop + 1;
      ++number_;
      return true;
    }
    searched_ = end_;
    if (!fill()) return false;
  }
}

std::string_view LineFile::rest() const { return {buffer_.data() + begin_, end_ - begin_}; }

// Reads on behind what is left, which moves to the front.
bool LineFile::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  searched_ -= begin_;
  end_ -= begin_;
  begin_ = 0;
  const std::size_t room = buffer_.size() - line_padding;
  if (end_ * 2 > room) buffer_.resize(room * 2 + line_padding);
  for (;;) {
    const ssize_t count =
        read(file_.get(), buffer_.data() + end_, buffer_.size() - line_padding - end_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_trouble("cannot read", path_, errno);
    end_ += static_cast<std::size_t>(count);
    return count > 0;
  }
}

bool LineHashes::add(std::string_view line) {
  if ((count_ + 1) * 2 > slots_.size()) grow();
  std::uint64_t hash = XXH3_64bits(line.data(), line.size());
  if (hash == 0) hash = 1;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    if (slots_[at] == hash) return false;
    if (slots_[at] != 0) continue;
    slots_[at] = hash;
    ++count_;
    return true;
  }
}

void LineHashes::grow() {
  std::vector<std::uint64_t> bigger(slots_.empty() ? 1024 : slots_.size() * 2);
  const std::size_t mask = bigger.size() - 1;
  for (const std::uint64_t hash : slots_) {
    if (hash == 0) continue;
    std::size_t at = hash & mask;
    while (bigger[at] != 0) at = (at + 1) & mask;
    bigger[at] = hash;
  }
  slots_ = std::move(bigger);
}

}  // namespace ttrace::invariant
