// SPDX-License-Identifier: Apache-2.0
// What the tests of segments share: a folder that goes away, records with random bits, and the
// message of the Trouble that a call ends in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/segment.hpp"

namespace ttrace::testing {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Random bits, which in the float formats include NaN, infinities and subnormals.
inline std::vector<std::byte> random_payload(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(element_count(shape) * size_of(dtype));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(dtype == DType::boolean ? random() & 1 : random() & 255);
  }
  return bytes;
}

inline Record record_of(std::string_view key, DType dtype, const Shape& shape) {
  Record record;
  record.key = parse_key(key).value();
  record.dtype = dtype;
  record.shape = shape;
  record.bytes = element_count(shape) * size_of(dtype);
  return record;
}

inline std::uint64_t write(SegmentWriter& writer, const Record& record,
                           std::span<const std::byte> bytes, const std::string& layout = "",
                           std::size_t piece = 4096) {
  const std::uint64_t sequence = writer.begin(record, layout);
  while (!bytes.empty()) {
    const std::size_t take = std::min(piece, bytes.size());
    writer.append(bytes.first(take));
    bytes = bytes.subspan(take);
  }
  writer.commit();
  return sequence;
}

// "" when the call ends well.
template <class Call>
std::string trouble_of(Call&& call) {
  try {
    call();
    return "";
  } catch (const Trouble& trouble) {
    return trouble.what();
  }
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ttrace::testing
