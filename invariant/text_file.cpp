// SPDX-License-Identifier: Apache-2.0
#include "invariant/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ttrace::invariant {

namespace {
constexpr std::size_t buffered = std::size_t{1} << 16;

bool is_special(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

void write_all(const FileDescriptor& file, std::string_view text,
               const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t count = write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_trouble("cannot write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}
}  // namespace

TextFile::TextFile(const std::filesystem::path& path)
    : path_(path),
      part_(is_special(path) ? path : std::filesystem::path(path.string() + ".part")),
      file_(open_file(part_, O_WRONLY | O_CREAT | O_TRUNC)) {}

TextFile::~TextFile() {
  if (!finished_ && part_ != path_) unlink(part_.c_str());
}

void TextFile::append(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= buffered) flush();
}

void TextFile::flush() {
  write_all(file_, buffer_, part_);
  buffer_.clear();
}

void TextFile::finish() {
  flush();
  if (part_ != path_) sync_and_rename(file_, part_, path_);
  finished_ = true;
}

}  // namespace ttrace::invariant
