// SPDX-License-Identifier: Apache-2.0
// The table of the CUDA driver, on a libcuda.so.1 that is the fake device: which context a default
// stream is of, and that nothing is asked that a graph capture of another thread forbids.
#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "test/capture/device/device_trace.hpp"

using namespace ttrace;
namespace fake = fake_device;

namespace {

nlohmann::json rank_of(const DeviceTrace& trace) {
  std::ifstream file(trace.rank_file());
  return nlohmann::json::parse(file);
}

constexpr std::uint64_t kBytes = 5000;

// As a program has its driver: loaded under this name before anything is recorded.
[[maybe_unused]] void* const driver = dlopen(TEST_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);

void check_versions(const SegmentReader& reader, std::size_t count) {
  REQUIRE(reader.records().size() == count);
  for (std::size_t n = 0; n < count; ++n)
    CHECK(first_wrong(reader.bytes(reader.records()[n]), n) == -1);
}

// Overwrites a buffer of `memory_context` in the stream, behind each record of it.
void record_from(void* stream, int memory_context, int thread_context) {
  fake::use_context(memory_context);
  auto* const buffer = static_cast<std::byte*>(fake::allocate(kBytes));
  for (std::uint64_t n = 0; n < 50; ++n) {
    fake::use_context(memory_context);
    fake::launch(stream, [=] { fill(buffer, kBytes, n); });
    fake::use_context(thread_context);
    REQUIRE(record("layer", buffer, kBytes, stream) == static_cast<std::int64_t>(n));
  }
  fake::use_context(memory_context);
  fake::launch(stream, [=] { fill(buffer, kBytes, 999); });
  REQUIRE(ttrace_close() == 0);
  fake::synchronize(stream);
  fake::release(buffer);
}

}  // namespace

TEST_CASE("a stream of the program's own") {
  DeviceTrace trace;
  fake::set_pause(300);
  record_from(fake::make_stream(), 1, 1);
  check_versions(trace.reader(), 50);
  CHECK(rank_of(trace)["events"] == nlohmann::json::array());
}

TEST_CASE("the default stream is that of the device of the data, whatever the thread's device is") {
  for (const int device : {1, 2, 3}) {
    for (const int current : {1, 2, 0}) {
      DeviceTrace trace;
      fake::set_pause(300);
      record_from(nullptr, device, current);
      check_versions(trace.reader(), 50);
    }
  }
}

TEST_CASE("a tensor that the driver does not know is the host's") {
  DeviceTrace trace;
  std::byte host[100];
  fill(host, sizeof host, 0);
  REQUIRE(record("layer", host, sizeof host, nullptr, TTRACE_ANYWHERE) == 0);
  std::memset(host, 0, sizeof host);
  fake::use_context(2);
  auto* const buffer = static_cast<std::byte*>(fake::allocate(kBytes));
  fake::launch(nullptr, [=] { fill(buffer, kBytes, 1); });
  REQUIRE(record("layer", buffer, kBytes, nullptr, TTRACE_ANYWHERE) == 1);
  REQUIRE(ttrace_close() == 0);
  check_versions(trace.reader(), 2);
  fake::release(buffer);
}

TEST_CASE("pinned memory of the host follows the stream that is named, else it is the host's") {
  DeviceTrace trace;
  fake::set_pause(300);
  void* const stream = fake::make_stream();
  constexpr auto kLegacy = std::uintptr_t{1};
  auto* const buffer = static_cast<std::byte*>(fake::allocate_pinned(kBytes));
  std::uint64_t n = 0;
  for (void* const named : {stream, reinterpret_cast<void*>(kLegacy)}) {
    // Any device reads it, so the default stream is that of the thread's, not of the memory's.
    fake::use_context(2);
    for (int round = 0; round < 20; ++round, ++n) {
      fake::launch(named, [=] { fill(buffer, kBytes, n); });
      REQUIRE(record("layer", buffer, kBytes, named, TTRACE_ANYWHERE) ==
              static_cast<std::int64_t>(n));
    }
    fake::synchronize(named);
  }
  fake::hold(nullptr);
  fill(buffer, kBytes, n);
  REQUIRE(record("layer", buffer, kBytes, nullptr, TTRACE_ANYWHERE) ==
          static_cast<std::int64_t>(n));
  fill(buffer, kBytes, 999);
  fake::let_go(nullptr);
  REQUIRE(ttrace_close() == 0);
  check_versions(trace.reader(), 41);
  fake::release(buffer);
}

TEST_CASE("all is given back") {
  const fake::Counts counts = fake::counts();
  CHECK(counts.pinned_bytes == 0);
  CHECK(counts.allocated_bytes == 0);
  CHECK(counts.events == 0);
  CHECK(counts.streams == 0);
}
