// SPDX-License-Identifier: Apache-2.0
// A driver that the program loads only after tensors of unknown place were recorded: looking for it
// each time would cost more than the record.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/capture/device/device_trace.hpp"

using namespace ttrace;
namespace fake = fake_device;

namespace {

std::atomic<int> looks{0};

}  // namespace

// The capture library's calls come here.
extern "C" void* dlopen(const char* name, int mode) noexcept {
  if (name != nullptr && std::strcmp(name, "libcuda.so.1") == 0) ++looks;
  return reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"))(name, mode);
}

TEST_CASE("a driver is looked for when libraries were loaded, and found when it is one of them") {
  DeviceTrace trace;
  std::byte host[100];
  for (std::uint64_t n = 0; n < 50; ++n) {
    fill(host, sizeof host, n);
    void* const named = n < 40 ? nullptr : host;
    REQUIRE(record("layer", host, sizeof host, named, TTRACE_ANYWHERE) ==
            static_cast<std::int64_t>(n));
  }
  CHECK(looks == 1);

  REQUIRE(dlopen(TEST_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL) != nullptr);
  constexpr std::uint64_t kBytes = 5000;
  fake::set_pause(300);
  void* const stream = fake::make_stream();
  auto* const buffer = static_cast<std::byte*>(fake::allocate(kBytes));
  for (std::uint64_t n = 50; n < 60; ++n) {
    fake::launch(stream, [=] { fill(buffer, kBytes, n); });
    REQUIRE(record("layer", buffer, kBytes, stream, TTRACE_ANYWHERE) ==
            static_cast<std::int64_t>(n));
  }
  CHECK(looks == 2);
  REQUIRE(ttrace_close() == 0);
  std::ifstream rank(trace.rank_file());
  const auto events = nlohmann::json::parse(rank)["events"];
  REQUIRE(events.size() == 1);
  CHECK(events[0]["what"] == "taken for host memory");
  CHECK(events[0]["where"] == "layer/output.0");
  CHECK(events[0]["count"] == 1);
  const SegmentReader reader = trace.reader();
  REQUIRE(reader.records().size() == 60);
  for (std::size_t n = 0; n < 60; ++n)
    CHECK(first_wrong(reader.bytes(reader.records()[n]), n) == -1);
  fake::synchronize(stream);
  fake::release(buffer);
}
