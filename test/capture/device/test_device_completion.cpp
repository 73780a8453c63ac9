// SPDX-License-Identifier: Apache-2.0
// The end of copies that never end: who waits for them gives up, and nothing of them is shown.
#include <unistd.h>

#include <array>
#include <chrono>

#include "capture/device_completion.hpp"
#include "libttrace/core/ring.hpp"
#include "test/capture/device/fake_device.hpp"
#include "test/catch.hpp"

using namespace ttrace;
namespace fake = fake_device;
using std::chrono::milliseconds;

namespace {

struct Events {
  std::array<void*, 5> all{};
  ~Events() {
    for (void* event : all) {
      if (event != nullptr) ttrace_device_ops()->destroy_event(event);
    }
  }
};

// A reservation of `bytes` that waits for `stream`.
LateBytes late_bytes(RingProducer& ring, std::size_t bytes, void* stream, void*& event) {
  const DeviceOps& ops = *ttrace_device_ops();
  fake::use_context(1);
  LateBytes late;
  REQUIRE(ops.create_event(&event) == 0);
  REQUIRE(ops.context_of(stream, nullptr, &late.context) == 0);
  REQUIRE(ring.reserve(bytes).size() == bytes);
  REQUIRE(ops.record_event(event, stream) == 0);
  late.event = event;
  return late;
}

}  // namespace

TEST_CASE("patience is for the next copy, not for all of them") {
  RingProducer ring(4096);
  RingConsumer consumer(ring.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);
  fake::use_context(1);
  Events events;  // outlive whoever waits for them
  void* const stream = fake::make_stream();
  DeviceCompletion completion(ring, *ttrace_device_ops());
  for (void*& event : events.all) {
    fake::launch(stream, [] { usleep(60000); });
    completion.add(late_bytes(ring, 10, stream, event));
  }
  ring.publish();
  const auto start = std::chrono::steady_clock::now();
  CHECK(completion.stop(milliseconds(200)));
  CHECK(std::chrono::steady_clock::now() - start > milliseconds(250));
  CHECK(consumer.peek(1000).size() == 50);
}

TEST_CASE("a stream that stands still is given up, and its bytes and those behind are not shown") {
  RingProducer ring(4096);
  RingConsumer consumer(ring.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);
  fake::use_context(1);
  void* const good = fake::make_stream();
  void* const stuck = fake::make_stream();
  fake::hold(stuck);
  Events events;
  DeviceCompletion completion(ring, *ttrace_device_ops());
  completion.add(late_bytes(ring, 10, good, events.all[0]));
  completion.add(late_bytes(ring, 20, stuck, events.all[1]));
  completion.add(late_bytes(ring, 30, good, events.all[2]));
  ring.publish();
  CHECK_FALSE(completion.stop(milliseconds(100)));
  CHECK_FALSE(completion.stop(milliseconds(100)));  // whoever asks again
  CHECK(consumer.peek(1000).size() == 10);
  fake::let_go(stuck);
}
