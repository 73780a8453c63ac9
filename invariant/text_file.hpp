// SPDX-License-Identifier: Apache-2.0
// A text file that is written beside its name and takes it when it is whole.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "libttrace/file.hpp"

namespace ttrace::invariant {

class TextFile {
 public:
  // Throws Trouble, as the others do.
  explicit TextFile(const std::filesystem::path& path);
  ~TextFile();  // without finish: as if it had never been
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  void append(std::string_view text);
  void finish();

 private:
  void flush();

  std::filesystem::path path_, part_;  // the same where the name is that of a device or a pipe
  FileDescriptor file_;
  std::string buffer_;
  bool finished_ = false;
};

}  // namespace ttrace::invariant
