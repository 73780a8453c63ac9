// SPDX-License-Identifier: Apache-2.0
// The blocks of a file events.bin (docs/format.md), also of one that still grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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

  // The next whole block; false when there is none (yet). Throws Trouble when it cannot be read or
  // is damaged: what comes after it refers to what it held.
  bool next(Block& block);
  // Whether there is a block behind the last one that is not whole: a run that was killed. Throws
  // Trouble when whole blocks follow it.
  [[nodiscard]] bool cut() const;
  // The block that was looked at last, of which `why` is said.
  [[noreturn]] void damaged(const std::string& why) const;

 private:
  bool fill();
  bool read_header();
  void take(std::size_t bytes);
  [[nodiscard]] bool is_whole(std::size_t place) const;

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool opened_ = false;       // the header was read
  std::uint64_t offset_ = 0;  // of begin_ in the file
  std::uint64_t taken_ = 0;   // how many blocks
  std::uint64_t number_ = 0;  // the latest that was looked at, from 1,
  std::uint64_t place_ = 0;   // and where it begins
};

}  // namespace ttrace::invariant
