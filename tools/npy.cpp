// SPDX-License-Identifier: Apache-2.0
// See npy.hpp. Version 1.0 of the format: magic, header length, a Python dict as text, data.
#include "tools/npy.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "diff/convert.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

const char* descriptor(DType type) {
  switch (type) {
    case DType::float64:
      return "<f8";
    case DType::float32:
    case DType::bfloat16:
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
      return "<f4";
    case DType::float16:
      return "<f2";
    case DType::int8:
      return "|i1";
    case DType::int16:
      return "<i2";
    case DType::int32:
      return "<i4";
    case DType::int64:
      return "<i8";
    case DType::uint8:
      return "|u1";
    case DType::boolean:
      return "|b1";
  }
  return "";
}

std::string header(DType type, const Shape& shape) {
  std::string extents;
  for (const std::uint64_t extent : shape) extents += std::to_string(extent) + ", ";
  std::string text = std::string("{'descr': '") + descriptor(type) +
                     "', 'fortran_order': False, 'shape': (" + extents + "), }";
  // Magic, version and length are 10 bytes; data begins at a multiple of 64.
  text.append(63 - (10 + text.size()) % 64, ' ');
  return text + "\n";
}

}  // namespace

NpyWriter::NpyWriter(const std::filesystem::path& path, DType type, const Shape& shape)
    : path_(path),
      type_(type),
      widens_(type == DType::bfloat16 || type == DType::float8_e4m3fn ||
              type == DType::float8_e5m2),
      file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) throw Trouble("write", path.string(), std::strerror(errno));
  const std::string text = header(type, shape);
  const unsigned char start[] = {0x93,
                                 'N',
                                 'U',
                                 'M',
                                 'P',
                                 'Y',
                                 1,
                                 0,
                                 static_cast<unsigned char>(text.size() & 0xff),
                                 static_cast<unsigned char>(text.size() >> 8)};
  write(start, sizeof start);
  write(text.data(), text.size());
}

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void NpyWriter::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_) == bytes) return;
  throw Trouble("write", path_.string(), std::string(std::strerror(errno)) + ", is the disk full?");
}

void NpyWriter::append(std::span<const std::byte> bytes) {
  if (!widens_) return write(bytes.data(), bytes.size());
  constexpr std::size_t kStep = 65536;  // elements
  const std::size_t size = size_of(type_);
  widened_.resize(kStep * sizeof(float));
  for (std::size_t at = 0; at < bytes.size(); at += kStep * size) {
    const std::size_t count = std::min(kStep, (bytes.size() - at) / size);
    convert(type_, bytes.data() + at, count, DType::float32, widened_.data());
    write(widened_.data(), count * sizeof(float));
  }
}

void NpyWriter::close() {
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) == 0) return;
  throw Trouble("write", path_.string(), std::string(std::strerror(errno)) + ", is the disk full?");
}

}  // namespace ttrace
