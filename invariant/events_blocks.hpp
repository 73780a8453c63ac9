// SPDX-License-Identifier: Apache-2.0
// The blocks of a file events.bin (docs/format.md), also of one that still grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "libttrace/file.hpp"

namespace ttrace::invariant {

enum class BlockKind : std::uint32_t { process, definitions, functions, meta, rows };

struct Block {
  BlockKind kind = BlockKind::process;
  std::uint64_t tag = 0;     // rows: the thread; definitions: the number of the first
  std::string_view payload;  // valid until the next call
};

class EventBlocks {
 public:
  // Throws Trouble when it cannot be opened, or is a later version.
  explicit EventBlocks(const std::filesystem::path& path);

  // The next whole block; false when there is none (yet). Throws Trouble when it cannot be read.
  bool next(Block& block);
  [[nodiscard]] std::uint64_t damaged() const { return damaged_; }  // places that hold no block
  // Whether there is a block behind the last one that is not whole.
  [[nodiscard]] bool cut() const { return end_ > begin_; }

 private:
  bool fill();
  bool read_header();
  void lose();
  bool resume();  // looks for the next block behind something that is none

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool opened_ = false;  // the header was read
  bool lost_ = false;
  std::uint64_t damaged_ = 0;
};

}  // namespace ttrace::invariant
