// SPDX-License-Identifier: Apache-2.0
// write_segment FILE: a segment with known content, for tests that read it with other programs.
// Element i of a tensor is the i-th code of its type, scrambled where there are too many codes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "libttrace/segment.hpp"

using namespace ttrace;

namespace {

// All codes of the 1- and 2-byte types; for the others the low bytes of i times a large odd number.
std::vector<std::byte> codes_of(DType dtype, std::uint64_t count) {
  const std::size_t size = size_of(dtype);
  std::vector<std::byte> bytes(count * size);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t code = size > 2 ? i * 0x9E3779B97F4A7C15u : i;
    if (dtype == DType::boolean) code = i % 3 == 0 ? 1 : 0;
    std::memcpy(bytes.data() + i * size, &code, size);
  }
  return bytes;
}

class Sample {
 public:
  explicit Sample(const char* path) : writer_(path, {"0123abcd", 5, 7, true}) {}

  void add(Record record, const std::string& layout = "") {
    const std::uint64_t count = element_count(record.shape);
    record.bytes = count * size_of(record.dtype);
    const std::vector<std::byte> bytes = codes_of(record.dtype, count);
    writer_.begin(record, layout);
    if (record.alias_of == kNotAlias) {
      for (std::size_t at = 0; at < bytes.size(); at += 777) {
        writer_.append(std::span(bytes).subspan(at, std::min<std::size_t>(777, bytes.size() - at)));
      }
    }
    writer_.commit();
  }
  void close() { writer_.close(true); }

 private:
  SegmentWriter writer_;
};

void write(const char* path) {
  Sample sample(path);
  Record record;
  record.key = {
      .iteration = 7, .microbatch = 0, .phase = Phase::forward, .module = "", .slot = "output.0"};
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {  // rows 0 to 11
    record.dtype = static_cast<DType>(code);
    record.key.module = std::string("types.") + std::string(name_of(record.dtype));
    record.shape = size_of(record.dtype) == 1 ? Shape{16, 16} : Shape{256, 256};
    record.raw_name = "module." + record.key.module;
    sample.add(record);
  }
  record.raw_name.clear();
  record.dtype = DType::float32;
  record.shape = {};
  record.key = {.iteration = 7, .phase = Phase::grad, .module = "a/b#1", .slot = "reduced"};
  record.flags = kFlagTrainable | kFlagNoGradient;
  sample.add(record, R"({"dims":"h[tp] d"})");  // row 12, 0-d
  record.flags = 0;
  record.key.slot = "clipped";
  record.shape = {4, 0};
  sample.add(record, R"({"dims":"h[tp] d"})");  // row 13, empty
  record.key = {.iteration = 7,
                .microbatch = 3,
                .phase = Phase::forward,
                .module = "@root",
                .call = 2,
                .slot = "input.tokens"};
  record.shape = {256, 256};
  record.alias_of = 1;
  sample.add(record);  // row 14, alias of types.float32
  record.alias_of = kNotAlias;
  record.kind = RecordKind::stats;
  record.key.slot = "input.mask";
  sample.add(record);  // row 15
  record.kind = RecordKind::hash;
  record.key.slot = "input.labels";
  sample.add(record);  // row 16
  sample.close();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_segment FILE\n");
    return 2;
  }
  try {
    write(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_segment: %s\n", error.what());
    return 2;
  }
}
