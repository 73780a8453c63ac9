// SPDX-License-Identifier: Apache-2.0
// Room in the ring that is taken now and filled later: the stream is the one that was written, in
// its order, whenever and by whomever the reservations are filled. Contents come from a counter.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "libttrace/core/ring.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

std::byte byte_at(std::uint64_t i) { return static_cast<std::byte>((i * 2654435761u) >> 13); }

void fill(std::span<std::byte> bytes, std::uint64_t from) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(from + i);
}

bool write(RingProducer& ring, std::uint64_t from, std::size_t count) {
  std::vector<std::byte> bytes(count);
  fill(bytes, from);
  return ring.write(bytes);
}

// Bytes that can be read now, and whether they are the next ones of the counter.
std::size_t read_shown(RingConsumer& ring, std::uint64_t from, bool& right) {
  std::size_t count = 0;
  while (ring.wait(milliseconds(0))) {
    const auto piece = ring.peek(1000);
    if (piece.empty()) break;
    for (const std::byte byte : piece) right = right && byte == byte_at(from + count++);
    ring.consume(piece.size());
  }
  return count;
}

// Fills what it is given, in order, some time later: a device's copy engine.
class LateFiller {
 public:
  explicit LateFiller(RingProducer& ring) : ring_(ring), thread_([this] { run(); }) {}
  void give(std::span<std::byte> bytes, std::uint64_t from) {
    const std::lock_guard lock(mutex_);
    given_.push_back({bytes, from});
    changed_.notify_one();
  }
  void join() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }

 private:
  struct Given {
    std::span<std::byte> bytes;
    std::uint64_t from;
  };
  void run() {
    std::unique_lock lock(mutex_);
    for (int n = 0;; ++n) {
      changed_.wait(lock, [this] { return ended_ || !given_.empty(); });
      if (given_.empty()) return;
      const Given given = given_.front();
      given_.pop_front();
      lock.unlock();
      if (n % 3 == 0) std::this_thread::sleep_for(microseconds(n % 200));
      fill(given.bytes, given.from);
      ring_.settle();
      lock.lock();
    }
  }
  RingProducer& ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Given> given_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("what stands behind a reservation is shown when that is settled, and not before") {
  RingProducer producer(4096);
  RingConsumer consumer(producer.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);
  bool right = true;

  REQUIRE(write(producer, 0, 10));
  const std::span<std::byte> first = producer.reserve(20);
  REQUIRE(first.size() == 20);
  REQUIRE(write(producer, 30, 5));
  const std::span<std::byte> second = producer.reserve(7);
  REQUIRE(write(producer, 42, 8));
  producer.publish();
  CHECK(read_shown(consumer, 0, right) == 10);

  fill(second, 35);  // whatever is filled first
  CHECK(read_shown(consumer, 10, right) == 0);
  fill(first, 10);
  producer.settle();
  CHECK(read_shown(consumer, 10, right) == 25);
  producer.settle();
  CHECK(read_shown(consumer, 35, right) == 15);
  CHECK(right);
}

TEST_CASE("settling shows no more than was published") {
  RingProducer producer(4096);
  RingConsumer consumer(producer.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);
  bool right = true;
  const std::span<std::byte> late = producer.reserve(3);
  fill(late, 0);
  producer.publish();
  REQUIRE(write(producer, 3, 9));
  producer.settle();
  CHECK(read_shown(consumer, 0, right) == 3);
  producer.publish();
  CHECK(read_shown(consumer, 3, right) == 9);
  CHECK(right);
}

TEST_CASE("a reservation is one piece, cut at the end of the memory") {
  RingProducer producer(4096);
  RingConsumer consumer(producer.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);
  bool right = true;
  REQUIRE(write(producer, 0, 4000));
  producer.publish();
  CHECK(read_shown(consumer, 0, right) == 4000);
  const std::span<std::byte> end = producer.reserve(1000);
  const std::span<std::byte> start = producer.reserve(1000 - end.size());
  CHECK(end.size() == 96);
  CHECK(start.data() == producer.memory().data());
  CHECK(producer.memory().size() == 4096);
  fill(end, 4000);
  fill(start, 4096);
  producer.publish();
  producer.settle();
  producer.settle();
  CHECK(read_shown(consumer, 4000, right) == 1000);
  CHECK(right);
}

TEST_CASE("late and early bytes mix many times around the ring, larger than it") {
  constexpr std::uint64_t kTotal = 4000000;
  RingProducer producer(8192);
  std::uint64_t read = 0;
  bool right = true;
  std::thread consumer([&] {
    RingConsumer ring(producer.fd(), ProcessWatch(getpid()));
    ring.announce(ConsumerState::ready);
    while (read < kTotal) {
      const auto piece = ring.peek(777);
      for (const std::byte byte : piece) right = right && byte == byte_at(read++);
      ring.consume(piece.size());
    }
  });
  REQUIRE(producer.wait_while(ConsumerState::starting, milliseconds(20000)).state ==
          ConsumerState::ready);
  LateFiller filler(producer);
  std::uint64_t written = 0;
  for (std::size_t n = 0; written < kTotal; ++n) {
    std::uint64_t count = std::min<std::uint64_t>(n * 37 % 20011, kTotal - written);
    if (n % 2 == 0) {
      REQUIRE(write(producer, written, count));
      written += count;
    } else {
      while (count != 0) {
        const std::span<std::byte> piece = producer.reserve(std::min<std::uint64_t>(count, 2048));
        REQUIRE_FALSE(piece.empty());
        filler.give(piece, written);
        written += piece.size();
        count -= piece.size();
      }
    }
    if (n % 3 == 0) producer.publish();
  }
  producer.publish();
  filler.join();
  consumer.join();
  CHECK(read == kTotal);
  CHECK(right);
}

TEST_CASE("a producer killed before it settled loses that and what stands behind it") {
  std::array<int, 2> ready{};
  REQUIRE(pipe(ready.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    RingProducer own(1 << 16);
    bool good = write(own, 0, 5000);
    fill(own.reserve(300), 5000);
    own.settle();
    good = good && !own.reserve(400).empty() && write(own, 5700, 100);
    own.publish();
    const std::string path =
        "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(own.fd());
    if (!good || ::write(ready[1], path.data(), path.size()) < 0) _exit(1);
    pause();
  }
  std::array<char, 64> path{};
  REQUIRE(read(ready[0], path.data(), path.size() - 1) > 0);
  const int memory = open(path.data(), O_RDWR);
  REQUIRE(memory >= 0);
  RingConsumer consumer(memory, ProcessWatch(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  bool right = true;
  CHECK(read_shown(consumer, 0, right) == 5300);
  CHECK(right);
  CHECK(consumer.peek(1).empty());
  close(memory);
}
