// SPDX-License-Identifier: Apache-2.0
// NumPy's file format, written as a stream: numpy.load(path) reads it. Types that NumPy lacks
// (bfloat16 and 8-bit floats) become float32, which holds all their values.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include "libttrace/core/record.hpp"

namespace ttrace {

class NpyWriter {
 public:
  // Throws Trouble, as all members do, when the file cannot be written.
  NpyWriter(const std::filesystem::path& path, DType type, const Shape& shape);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // Packed elements of `type`, in row-major order, in pieces of any whole number of elements.
  void append(std::span<const std::byte> bytes);
  void close();

 private:
  void write(const void* data, std::size_t bytes);

  std::filesystem::path path_;
  DType type_;
  bool widens_;
  std::FILE* file_;
  std::vector<std::byte> widened_;
};

}  // namespace ttrace
