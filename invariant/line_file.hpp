// SPDX-License-Identifier: Apache-2.0
// A text file line by line, also one that still grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "libttrace/file.hpp"

namespace ttrace::invariant {

class LineFile {
 public:
  // Throws Trouble when it cannot be opened.
  explicit LineFile(const std::filesystem::path& path);

  // The next line that has an end, without it; false when there is none (yet). The view is valid
  // until the next call; line_padding bytes behind it can be read. Throws Trouble.
  bool next(std::string_view& line);
  // What is left behind the last line: one without an end. Valid like a line.
  [[nodiscard]] std::string_view rest() const;
  [[nodiscard]] std::uint32_t number() const { return number_; }  // of the latest line, from 1

 private:
  bool fill();

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, searched_ = 0, end_ = 0;  // not handed out yet; without a line's end
  std::uint32_t number_ = 0;
};

// Hashes of lines, to find copies.
class LineHashes {
 public:
  // False when the same line was there before.
  bool add(std::string_view line);

 private:
  void grow();
  std::vector<std::uint64_t> slots_;  // 0: free
  std::size_t count_ = 0;
};

}  // namespace ttrace::invariant
