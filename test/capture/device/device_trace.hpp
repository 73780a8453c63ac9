// SPDX-License-Identifier: Apache-2.0
// What the tests of tensors on a device share: a trace of this process on the fake device, and
// bytes that tell which tensor and which version of it they are.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "capture/ttrace.h"
#include "libttrace/segment.hpp"
#include "test/capture/device/fake_device.hpp"
#include "test/catch.hpp"

namespace ttrace {

inline std::byte byte_of(std::uint64_t version, std::size_t i) {
  return static_cast<std::byte>(i * 31 + version * 17 + (i >> 8) * 5 + (i >> 16));
}

inline void fill(std::byte* bytes, std::size_t count, std::uint64_t version) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_of(version, i);
}

// -1: the bytes are those of `version`; else the first that is not.
inline std::int64_t first_wrong(std::span<const std::byte> bytes, std::uint64_t version) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != byte_of(version, i)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

// From the opening of a trace to its reading.
class DeviceTrace {
 public:
  explicit DeviceTrace(const std::string& ring_bytes = "1048576") {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-dev-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
    open(path, ring_bytes);
    fake_device::use_context(1);
  }
  ~DeviceTrace() {
    ttrace_close();
    std::filesystem::remove_all(path);
  }
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  static void open(const std::filesystem::path& trace, const std::string& ring_bytes) {
    setenv("TTRACE_OUT", trace.c_str(), 1);
    setenv("TTRACE_WRITER", TEST_WRITER, 1);
    setenv("TTRACE_DEVICE_OPS", TEST_FAKE_DEVICE, 1);
    setenv("TTRACE_RING", ring_bytes.c_str(), 1);
    unsetenv("RANK");
    REQUIRE(ttrace_open(nullptr) == 0);
    REQUIRE(ttrace_begin_iteration(0) == 0);
  }

  [[nodiscard]] SegmentReader reader() const {
    return SegmentReader(path / "rank00000/it000000.h5");
  }
  [[nodiscard]] std::filesystem::path rank_file() const { return path / "rank00000/rank.json"; }

  std::filesystem::path path;
};

inline ttrace_tensor bytes_tensor(const char* module, const std::uint64_t& count,
                                  const void* data) {
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = TTRACE_FORWARD;
  tensor.dtype = TTRACE_UINT8;
  tensor.ndim = 1;
  tensor.module = module;
  tensor.slot = "output.0";
  tensor.shape = &count;
  tensor.data = data;
  tensor.alias_of = -1;
  return tensor;
}

inline std::int64_t record(const std::string& module, const void* data, std::uint64_t count,
                           void* stream, std::uint32_t device = TTRACE_DEVICE) {
  ttrace_tensor tensor = bytes_tensor(module.c_str(), count, data);
  tensor.device = device;
  tensor.stream = stream;
  return ttrace_record(&tensor);
}

}  // namespace ttrace
