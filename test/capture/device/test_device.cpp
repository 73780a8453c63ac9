// SPDX-License-Identifier: Apache-2.0
// Tensors on a device hold, in the trace, what they held in the order of their stream, although the
// device is late and the program goes on at once: it overwrites, frees and uses again. The device
// is a fake whose streams run when they like (fake_device.hpp).
#include <atomic>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "test/capture/device/device_trace.hpp"

using namespace ttrace;
namespace fake = fake_device;

namespace {

nlohmann::json rank_of(const DeviceTrace& trace) {
  std::ifstream file(trace.rank_file());
  return nlohmann::json::parse(file);
}

// Sizes that straddle pieces, staging memory and the end of the ring.
std::uint64_t odd_size(std::uint64_t n) { return n * 7919 % 40009 + 1; }

void write_later(void* stream, std::byte* data, std::uint64_t count, std::uint64_t version) {
  fake::launch(stream, [=] { fill(data, count, version); });
}

// The n-th record is the n-th version, of the expected size.
void check_versions(const SegmentReader& reader, std::uint64_t records) {
  REQUIRE(reader.records().size() == records);
  for (std::uint64_t n = 0; n < records; ++n) {
    const Record& record = reader.records()[n];
    CHECK(record.key.module == "record." + std::to_string(n));
    const auto bytes = reader.bytes(record);
    CHECK(bytes.size() == odd_size(n));
    if (first_wrong(bytes, n) >= 0) FAIL_CHECK("record " << n << " has other bytes");
  }
}

}  // namespace

TEST_CASE("a buffer that is overwritten after each call is recorded as it was at the call") {
  DeviceTrace trace;
  fake::set_pause(300);
  void* const stream = fake::make_stream();
  auto* const buffer = static_cast<std::byte*>(fake::allocate(1 << 16));
  for (std::uint64_t n = 0; n < 300; ++n) {
    write_later(stream, buffer, odd_size(n), n);
    REQUIRE(record("record." + std::to_string(n), buffer, odd_size(n), stream) ==
            static_cast<std::int64_t>(n));
  }
  write_later(stream, buffer, 1 << 16, 999);
  REQUIRE(ttrace_close() == 0);
  check_versions(trace.reader(), 300);
  CHECK(trace.reader().info().complete);
  CHECK(rank_of(trace)["events"] == nlohmann::json::array());
  fake::synchronize(stream);
  fake::release(buffer);
}

TEST_CASE(
    "memory that is freed in the stream's order, and used again at once, is recorded before") {
  DeviceTrace trace;
  fake::set_pause(300);
  void* const stream = fake::make_stream();
  for (std::uint64_t n = 0; n < 200; ++n) {
    auto* const fresh = static_cast<std::byte*>(fake::allocate(odd_size(n)));
    write_later(stream, fresh, odd_size(n), n);
    REQUIRE(record("record." + std::to_string(n), fresh, odd_size(n), stream) >= 0);
    fake::launch(stream, [fresh] { fake::release(fresh); });
  }
  REQUIRE(ttrace_close() == 0);
  check_versions(trace.reader(), 200);
  fake::synchronize(stream);
}

TEST_CASE("records of the host and of the device keep the order of the calls") {
  DeviceTrace trace("65536");
  fake::set_pause(200);
  void* const stream = fake::make_stream();
  std::vector<std::byte> host(1 << 16);
  auto* const buffer = static_cast<std::byte*>(fake::allocate(1 << 16));
  for (std::uint64_t n = 0; n < 300; ++n) {
    const bool late = n % 3 != 1;
    if (late) {
      write_later(stream, buffer, odd_size(n), n);
    } else {
      fill(host.data(), odd_size(n), n);
    }
    const void* const data = late ? buffer : host.data();
    REQUIRE(record("record." + std::to_string(n), data, odd_size(n), stream,
                   late ? TTRACE_DEVICE : TTRACE_HOST) == static_cast<std::int64_t>(n));
  }
  REQUIRE(ttrace_close() == 0);
  check_versions(trace.reader(), 300);
  fake::synchronize(stream);
  fake::release(buffer);
}

TEST_CASE("tensors much larger than the ring pass through it") {
  for (const std::size_t staging : {std::size_t{1} << 30, std::size_t{65536} - 1}) {
    DeviceTrace trace("65536");
    fake::set_pause(50);
    fake::set_largest_allocation(staging);  // none, the second time
    void* const stream = fake::make_stream();
    constexpr std::size_t kBytes = (std::size_t{1} << 20) + 12345;
    auto* const buffer = static_cast<std::byte*>(fake::allocate(kBytes));
    for (std::uint64_t n = 0; n < 3; ++n) {
      write_later(stream, buffer, kBytes, n);
      REQUIRE(record("large", buffer, kBytes, stream) >= 0);
    }
    REQUIRE(ttrace_close() == 0);
    fake::set_largest_allocation(~std::size_t{0});
    const SegmentReader reader = trace.reader();
    REQUIRE(reader.records().size() == 3);
    for (std::uint64_t n = 0; n < 3; ++n) {
      CHECK(reader.bytes(reader.records()[n]).size() == kBytes);
      CHECK(first_wrong(reader.bytes(reader.records()[n]), n) == -1);
    }
    fake::synchronize(stream);
    fake::release(buffer);
  }
}

TEST_CASE("several streams share a staging memory that is smaller than what they copy") {
  DeviceTrace trace("4194304");
  fake::set_pause(200);
  fake::set_largest_allocation(1 << 16);
  void* const streams[] = {fake::make_stream(), fake::make_stream(), fake::make_stream()};
  std::byte* buffers[3];
  for (std::byte*& buffer : buffers) buffer = static_cast<std::byte*>(fake::allocate(1 << 16));
  for (std::uint64_t n = 0; n < 300; ++n) {
    write_later(streams[n % 3], buffers[n % 3], odd_size(n), n);
    REQUIRE(record("record." + std::to_string(n), buffers[n % 3], odd_size(n), streams[n % 3]) ==
            static_cast<std::int64_t>(n));
  }
  CHECK(fake::counts().waits > 0);
  REQUIRE(ttrace_close() == 0);
  fake::set_largest_allocation(~std::size_t{0});
  check_versions(trace.reader(), 300);
  const auto events = rank_of(trace)["events"];
  REQUIRE(events.size() == 1);
  CHECK(events[0]["what"] == "slow copies");
  CHECK(events[0]["why"].get<std::string>().find("64 KiB left for staging instead of 4096") !=
        std::string::npos);
  for (void* stream : streams) fake::synchronize(stream);
  for (std::byte* buffer : buffers) fake::release(buffer);
}

TEST_CASE("a call does not wait for its stream") {
  DeviceTrace trace;
  void* const stream = fake::make_stream();
  auto* const buffer = static_cast<std::byte*>(fake::allocate(1000));
  fake::hold(stream);
  for (std::uint64_t n = 0; n < 20; ++n) {
    fake::launch(stream, [=] { fill(buffer, 1000, n); });
    REQUIRE(record("held", buffer, 1000, stream) == static_cast<std::int64_t>(n));
  }
  fake::let_go(stream);  // nothing has run until here
  REQUIRE(ttrace_close() == 0);
  const SegmentReader reader = trace.reader();
  REQUIRE(reader.records().size() == 20);
  for (std::uint64_t n = 0; n < 20; ++n)
    CHECK(first_wrong(reader.bytes(reader.records()[n]), n) == -1);
  fake::release(buffer);
}

TEST_CASE("threads record from streams of two contexts at once") {
  constexpr int kThreads = 8;
  constexpr std::uint64_t kEach = 60;
  DeviceTrace trace("262144");
  fake::set_pause(100);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &failed] {
      fake::use_context(t % 2 + 1);
      void* const stream = fake::make_stream();
      auto* const buffer = static_cast<std::byte*>(fake::allocate(1 << 16));
      fake::use_context(2 - t % 2);  // the stream says where it is, not the thread
      for (std::uint64_t n = 0; n < kEach; ++n) {
        write_later(stream, buffer, odd_size(n + 1000), n * 8 + static_cast<unsigned>(t));
        const std::string module = std::to_string(t) + "." + std::to_string(n);
        if (record(module, buffer, odd_size(n + 1000), stream) < 0) ++failed;
      }
      fake::synchronize(stream);
      fake::release(buffer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  REQUIRE(ttrace_close() == 0);
  const SegmentReader reader = trace.reader();
  REQUIRE(reader.records().size() == kThreads * kEach);
  std::vector<std::uint64_t> next(kThreads, 0);
  for (const Record& record : reader.records()) {
    const std::string& module = record.key.module;
    const auto thread = static_cast<std::size_t>(module[0] - '0');
    const std::uint64_t n = std::stoull(module.substr(2));
    CHECK(n == next[thread]++);
    const auto bytes = reader.bytes(record);
    CHECK(bytes.size() == odd_size(n + 1000));
    if (first_wrong(bytes, n * 8 + thread) >= 0) FAIL_CHECK(module << " has other bytes");
  }
}

TEST_CASE("statistics and hashes are those of the same bytes on the host") {
  DeviceTrace trace;
  fake::set_pause(0);
  void* const stream = fake::make_stream();
  const float values[4] = {1, 2, -3, 4};
  auto* const buffer = static_cast<float*>(fake::allocate(sizeof values));
  fake::launch(stream, [=] { std::memcpy(buffer, values, sizeof values); });
  const std::uint64_t four = 4;
  for (const std::uint8_t kind : {TTRACE_STATS, TTRACE_HASH}) {
    for (const bool late : {true, false}) {
      ttrace_tensor tensor = bytes_tensor("layer", four, late ? buffer : values);
      tensor.dtype = TTRACE_FLOAT32;
      tensor.kind = kind;
      tensor.device = late ? TTRACE_DEVICE : TTRACE_HOST;
      tensor.stream = stream;
      tensor.call = late ? 0 : 1;
      REQUIRE(ttrace_record(&tensor) >= 0);
    }
  }
  REQUIRE(ttrace_close() == 0);
  const SegmentReader reader = trace.reader();
  const auto& records = reader.records();
  REQUIRE(records.size() == 4);
  CHECK(records[0].kind == RecordKind::stats);
  CHECK(records[0].statistics.sum_squares == 30);
  CHECK(records[0].statistics.min == -3);
  CHECK(records[2].kind == RecordKind::hash);
  CHECK(records[0].hash == records[1].hash);
  CHECK(records[2].hash == records[3].hash);
  fake::release(buffer);
}

TEST_CASE("the driver tells where a tensor is when the program does not") {
  DeviceTrace trace;
  fake::set_pause(300);
  void* const stream = fake::make_stream();
  auto* const buffer = static_cast<std::byte*>(fake::allocate(100));
  std::vector<std::byte> host(100);
  fill(host.data(), 100, 1);
  fake::launch(stream, [=] { fill(buffer, 100, 0); });
  REQUIRE(record("device", buffer + 0, 100, stream, TTRACE_ANYWHERE) == 0);
  REQUIRE(record("host", host.data(), 100, nullptr, TTRACE_ANYWHERE) == 1);
  fill(host.data(), 100, 7);
  fake::launch(stream, [=] { fill(buffer, 100, 7); });
  REQUIRE(ttrace_close() == 0);
  const SegmentReader reader = trace.reader();
  CHECK(first_wrong(reader.bytes(reader.records().at(0)), 0) == -1);
  CHECK(first_wrong(reader.bytes(reader.records().at(1)), 1) == -1);
  fake::synchronize(stream);
  fake::release(buffer);
}
