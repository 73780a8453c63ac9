// SPDX-License-Identifier: Apache-2.0
// What goes wrong with tensors on a device, and what of it a trace says: nothing is recorded that
// was not copied, and everything else is.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "test/capture/device/device_trace.hpp"

using namespace ttrace;
namespace fake = fake_device;
using std::chrono::milliseconds;

namespace {

nlohmann::json rank_of(const DeviceTrace& trace) {
  std::ifstream file(trace.rank_file());
  return nlohmann::json::parse(file);
}

constexpr std::uint64_t kBytes = 5000;

std::byte* allocate() { return static_cast<std::byte*>(fake::allocate(kBytes)); }

void write_later(void* stream, std::byte* data, std::uint64_t version) {
  fake::launch(stream, [=] { fill(data, kBytes, version); });
}

bool holds(const SegmentReader& reader, std::size_t at, std::uint64_t version) {
  const auto bytes = reader.bytes(reader.records().at(at));
  return bytes.size() == kBytes && first_wrong(bytes, version) == -1;
}

// The program of this file that `task` names, in a process of its own; its wait status.
int run_child(const std::string& task, const std::filesystem::path& trace) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  setenv("TEST_CHILD_TRACE", trace.c_str(), 1);
  return std::system((self + " '" + task + "' > /dev/null").c_str());
}

void wait_for_writer(const DeviceTrace& trace) {
  for (int tries = 0; tries < 500; ++tries) {
    try {
      if (!rank_of(trace).contains("writer_pid")) return;
    } catch (const std::exception&) {  // not written yet
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}

}  // namespace

TEST_CASE("a stream that is captured into a graph is noted and takes no number") {
  DeviceTrace trace;
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  write_later(stream, buffer, 1);
  CHECK(record("before", buffer, kBytes, stream) == 0);
  fake::set_capturing(stream, true);
  CHECK(record("captured", buffer, kBytes, stream) == -ENOTCONN);
  CHECK(record("captured", buffer, kBytes, stream) == -ENOTCONN);
  fake::set_capturing(stream, false);
  CHECK(record("after", buffer, kBytes, stream) == 1);
  REQUIRE(ttrace_close() == 0);
  CHECK(trace.reader().records().size() == 2);
  const auto rank = rank_of(trace);
  REQUIRE(rank["events"].size() == 1);
  CHECK(rank["events"][0]["where"] == "captured/output.0");
  CHECK(rank["events"][0]["count"] == 2);
  CHECK(rank["degraded"] == false);
  fake::synchronize(stream);
  fake::release(buffer);
}

TEST_CASE("a copy that cannot be begun is left out with its aliases, and the rest is there") {
  DeviceTrace trace("65536");
  void* const stream = fake::make_stream();
  std::byte* const good = allocate();
  std::byte* const bad = allocate();
  write_later(stream, good, 1);
  fake::fail_copy_from(bad);
  REQUIRE(record("good", good, kBytes, stream) == 0);
  REQUIRE(record("bad", bad, kBytes, stream) == -EIO);
  CHECK(std::string(ttrace_last_error()).find("error 700, says the fake device") !=
        std::string::npos);
  ttrace_tensor alias = bytes_tensor("alias", kBytes, nullptr);
  alias.alias_of = 1;
  CHECK(ttrace_record(&alias) == 2);
  REQUIRE(record("later", good, kBytes, stream) == 3);
  CHECK(ttrace_close() == -EIO);
  const SegmentReader reader = trace.reader();
  REQUIRE(reader.records().size() == 2);
  CHECK(holds(reader, 0, 1));
  CHECK(reader.records()[1].key.module == "later");
  CHECK(holds(reader, 1, 1));
  const auto rank = rank_of(trace);
  CHECK(rank["lost"] == 2);
  CHECK(rank["degraded"] == true);
  REQUIRE(rank["events"].size() == 1);
  CHECK(rank["events"][0]["where"] == "bad/output.0");
  fake::synchronize(stream);
  fake::release(good);
  fake::release(bad);
}

TEST_CASE("what the device lost after the call is left out, too") {
  DeviceTrace trace;
  void* const stream = fake::make_stream();
  fake::use_context(2);
  void* const other = fake::make_stream();
  std::byte* const buffer = allocate();
  fake::hold(other);
  write_later(other, buffer, 1);
  REQUIRE(record("lost", buffer, kBytes, other) == 0);
  fake::break_context(2);
  fake::let_go(other);
  std::vector<std::byte> host(kBytes);
  fill(host.data(), kBytes, 3);
  REQUIRE(record("host", host.data(), kBytes, nullptr, TTRACE_HOST) == 1);
  std::byte* const sound = allocate();
  write_later(stream, sound, 4);
  REQUIRE(record("sound", sound, kBytes, stream) == 2);
  CHECK(ttrace_close() == -EIO);
  const SegmentReader reader = trace.reader();
  REQUIRE(reader.records().size() == 2);
  CHECK(holds(reader, 0, 3));
  CHECK(holds(reader, 1, 4));
  const auto rank = rank_of(trace);
  CHECK(rank["events"][0]["why"] == "its copy from the device ended with error 719");
  fake::synchronize(other);
  fake::synchronize(stream);
  fake::release(buffer);
  fake::release(sound);
}

TEST_CASE("closing gives back all that was made on the device") {
  const fake::Counts before = fake::counts();
  std::byte* buffer = nullptr;
  {
    DeviceTrace trace;
    void* const stream = fake::make_stream();
    buffer = allocate();
    for (std::uint64_t n = 0; n < 100; ++n) {
      write_later(stream, buffer, n);
      REQUIRE(record("layer", buffer, kBytes, stream) >= 0);
    }
    const fake::Counts during = fake::counts();
    CHECK(during.streams == before.streams + 1);
    CHECK(during.pinned_bytes == 1048576);
    CHECK(during.allocated_bytes == before.allocated_bytes + kBytes + 1048576);
    REQUIRE(ttrace_close() == 0);
    fake::synchronize(stream);
    fake::release(buffer);
  }
  const fake::Counts after = fake::counts();
  CHECK(after.streams == before.streams);
  CHECK(after.events == before.events);
  CHECK(after.pinned_bytes == 0);
  CHECK(after.allocated_bytes == before.allocated_bytes);
}

TEST_CASE("events are used again and do not grow with the records") {
  DeviceTrace trace;
  fake::set_pause(0);
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  const std::uint64_t before = fake::counts().events;
  for (std::uint64_t n = 0; n < 200; ++n) {
    REQUIRE(record("layer", buffer, kBytes, stream) >= 0);
    fake::synchronize(stream);
    if (n % 8 == 7) std::this_thread::sleep_for(milliseconds(2));
  }
  CHECK(fake::counts().events < before + 100);
  REQUIRE(ttrace_close() == 0);
  fake::release(buffer);
}

TEST_CASE("child: dies while a copy is under way", "[.]") {
  DeviceTrace::open(std::getenv("TEST_CHILD_TRACE"), "1048576");
  fake::use_context(1);
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  for (std::uint64_t n = 0; n < 5; ++n) {
    write_later(stream, buffer, n);
    REQUIRE(record("whole", buffer, kBytes, stream) >= 0);
  }
  fake::synchronize(stream);
  std::vector<std::byte> host(kBytes);
  fill(host.data(), kBytes, 5);
  REQUIRE(record("host", host.data(), kBytes, nullptr, TTRACE_HOST) == 5);
  std::this_thread::sleep_for(milliseconds(300));  // the copies to the host end, too
  fake::hold(stream);
  REQUIRE(record("cut", buffer, kBytes, stream) == 6);
  REQUIRE(record("behind", host.data(), kBytes, nullptr, TTRACE_HOST) == 7);
  std::this_thread::sleep_for(milliseconds(50));
  kill(getpid(), SIGKILL);
}

TEST_CASE("of a process that dies only what was not complete is missing") {
  DeviceTrace trace;
  REQUIRE(ttrace_close() == 0);
  std::filesystem::remove_all(trace.path);
  const int status = run_child("child: dies while a copy is under way", trace.path);
  CHECK(WEXITSTATUS(status) == 128 + SIGKILL);
  wait_for_writer(trace);
  const SegmentReader reader = trace.reader();
  CHECK_FALSE(reader.info().complete);
  REQUIRE(reader.records().size() == 6);
  for (std::size_t n = 0; n < 6; ++n) CHECK(holds(reader, n, n));
  const auto events = rank_of(trace)["events"];
  REQUIRE(events.size() == 2);
  CHECK(events[0]["where"] == "cut/output.0");
  CHECK(events[0]["why"] == "the device had not come to it when the process ended");
  CHECK(events[1]["what"] == "rank ended early");
}

TEST_CASE("child: forgets to close", "[.]") {
  DeviceTrace::open(std::getenv("TEST_CHILD_TRACE"), "65536");
  fake::use_context(1);
  fake::set_pause(2000);
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  for (std::uint64_t n = 0; n < 40; ++n) {
    write_later(stream, buffer, n);
    REQUIRE(record("layer", buffer, kBytes, stream) >= 0);
  }
}

TEST_CASE("the end of the process waits for copies") {
  DeviceTrace trace;
  REQUIRE(ttrace_close() == 0);
  std::filesystem::remove_all(trace.path);
  CHECK(run_child("child: forgets to close", trace.path) == 0);
  const SegmentReader reader = trace.reader();
  CHECK(reader.info().complete);
  REQUIRE(reader.records().size() == 40);
  for (std::size_t n = 0; n < 40; ++n) CHECK(holds(reader, n, n));
}

TEST_CASE("a program goes on when its writer dies under copies") {
  DeviceTrace trace("65536");
  fake::set_pause(500);
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  REQUIRE(record("layer", buffer, kBytes, stream) == 0);
  kill(rank_of(trace)["writer_pid"].get<pid_t>(), SIGKILL);
  for (int n = 0; n < 1000 && ttrace_active() == 1; ++n) {
    write_later(stream, buffer, 1);
    (void)record("layer", buffer, kBytes, stream);
  }
  CHECK(ttrace_active() == 0);
  CHECK(ttrace_close() == 0);
  CHECK(fake::counts().pinned_bytes == 0);
  fake::synchronize(stream);
  fake::release(buffer);
}

TEST_CASE("a forked child records nothing and leaves its parent's copies alone") {
  DeviceTrace trace;
  void* const stream = fake::make_stream();
  std::byte* const buffer = allocate();
  write_later(stream, buffer, 1);
  REQUIRE(record("parent", buffer, kBytes, stream) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool silent = record("child", buffer, kBytes, stream) == -ENOTCONN && ttrace_close() == 0;
    _exit(silent ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  REQUIRE(record("again", buffer, kBytes, stream) == 1);
  REQUIRE(ttrace_close() == 0);
  CHECK(holds(trace.reader(), 1, 1));
  fake::synchronize(stream);
  fake::release(buffer);
}

TEST_CASE("child: has no driver", "[.]") {
  setenv("TTRACE_DEVICE_OPS", "", 1);
  DeviceTrace::open(std::getenv("TEST_CHILD_TRACE"), "65536");
  setenv("TTRACE_DEVICE_OPS", "", 1);
  const std::vector<std::byte> host(kBytes);
  REQUIRE(record("layer", host.data(), kBytes, nullptr, TTRACE_ANYWHERE) == 0);
  REQUIRE(record("device", host.data(), kBytes, nullptr, TTRACE_DEVICE) == -ENODEV);
  CHECK(std::string(ttrace_last_error()).find("libcuda.so.1") != std::string::npos);
  REQUIRE(ttrace_close() == 0);
}

TEST_CASE("without a driver a tensor of unknown place is the host's, and others are refused") {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) return;
  DeviceTrace trace;
  REQUIRE(ttrace_close() == 0);
  std::filesystem::remove_all(trace.path);
  CHECK(run_child("child: has no driver", trace.path) == 0);
  CHECK(trace.reader().records().size() == 1);
  CHECK(rank_of(trace)["degraded"] == true);
}
