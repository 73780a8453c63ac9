// SPDX-License-Identifier: Apache-2.0
// The ring between two threads, and between two processes of which one is killed. Contents come
// from a counter, so that a lost, repeated or moved byte shows.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libttrace/core/ring.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using std::chrono::milliseconds;

namespace {

// Byte i of the whole stream.
std::byte byte_at(std::uint64_t i) { return static_cast<std::byte>((i * 2654435761u) >> 13); }

std::vector<std::byte> piece_of_stream(std::uint64_t from, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_at(from + i);
  return bytes;
}

// 1, 2, 3, 7, 63, 64, 65, ... and sizes larger than any ring below.
std::vector<std::size_t> odd_sizes() {
  std::vector<std::size_t> sizes = {1, 0, 2, 3, 7, 63, 64, 65, 511, 4095, 4096, 4097, 12289, 40000};
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(i * 37 % 1013);
  return sizes;
}

struct ConsumerResult {
  std::uint64_t bytes = 0;
  std::uint64_t wrong = 0;
};

// Reads until `total` bytes have come or the stream ends.
ConsumerResult consume_all(RingConsumer& ring, std::uint64_t total, std::size_t most) {
  ConsumerResult result;
  while (result.bytes < total) {
    const auto piece = ring.peek(most);
    if (piece.empty()) break;
    for (const std::byte byte : piece) {
      if (byte != byte_at(result.bytes)) ++result.wrong;
      ++result.bytes;
    }
    ring.consume(piece.size());
  }
  return result;
}

void wait_until_ready(RingProducer& ring) {
  REQUIRE(ring.wait_while(ConsumerState::starting, milliseconds(20000)).state ==
          ConsumerState::ready);
}

// Runs `body` in a child process; the child never returns into the test program.
template <class Body>
pid_t in_child(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

void kill_and_collect(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

TEST_CASE("a stream of odd sizes passes between two threads, many times around the ring") {
  for (const std::uint64_t capacity : {std::uint64_t{4096}, std::uint64_t{65536}}) {
    RingProducer producer(capacity);
    const std::vector<std::size_t> sizes = odd_sizes();
    const auto total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) * 5;

    ConsumerResult result;
    std::thread consumer([&] {
      RingConsumer ring(producer.fd(), ProcessWatch(getpid()));
      ring.announce(ConsumerState::ready);
      result = consume_all(ring, total, 1000);
    });
    wait_until_ready(producer);
    std::uint64_t written = 0;
    bool good = true;
    for (int round = 0; round < 5; ++round) {
      for (const std::size_t size : sizes) {
        good = good && producer.write(piece_of_stream(written, size));
        producer.publish();
        written += size;
      }
    }
    consumer.join();

    CHECK(good);
    CHECK(result.bytes == total);
    CHECK(result.wrong == 0);
  }
}

TEST_CASE("what was written is not seen before it is published") {
  RingProducer producer(4096);
  RingConsumer consumer(producer.fd(), ProcessWatch(getpid()));
  consumer.announce(ConsumerState::ready);

  REQUIRE(producer.write(piece_of_stream(0, 10)));
  CHECK_FALSE(consumer.wait(milliseconds(5)));
  producer.publish();

  CHECK(consumer.wait(milliseconds(5)));
  CHECK(consumer.peek(100).size() == 10);
}

TEST_CASE("a killed producer's published bytes are all read, then the stream ends") {
  // The child makes the ring, because a producer's memory is hidden from its own children.
  std::array<int, 2> ready{};
  REQUIRE(pipe(ready.data()) == 0);
  const pid_t child = in_child([&] {
    RingProducer own(1 << 20);
    const int shared = own.fd();
    const bool good = own.write(piece_of_stream(0, 100000));
    own.publish();
    const bool rest = own.write(piece_of_stream(100000, 500));  // never published
    const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(shared);
    if (!good || !rest || write(ready[1], path.data(), path.size()) < 0) _exit(1);
    pause();
  });
  std::array<char, 64> path{};
  REQUIRE(read(ready[0], path.data(), path.size() - 1) > 0);
  const int memory = open(path.data(), O_RDWR);
  REQUIRE(memory >= 0);

  RingConsumer consumer(memory, ProcessWatch(child));
  kill_and_collect(child);
  const ConsumerResult result = consume_all(consumer, 1 << 20, 4096);

  CHECK(result.bytes == 100000);
  CHECK(result.wrong == 0);
  close(memory);
}

TEST_CASE("a producer that waits for room notices that its consumer was killed") {
  RingProducer producer(8192);
  const pid_t child = in_child([&] {
    RingConsumer ring(producer.fd(), ProcessWatch(getppid()));
    ring.announce(ConsumerState::ready);
    pause();
  });
  wait_until_ready(producer);
  REQUIRE(producer.write(piece_of_stream(0, 8192)));
  CHECK_FALSE(producer.consumer_gone());

  std::thread killer([child] { kill_and_collect(child); });
  CHECK_FALSE(producer.write(piece_of_stream(8192, 1)));
  killer.join();

  CHECK(producer.consumer_gone());
}

TEST_CASE("a stream passes between two processes, in messages larger than the ring") {
  RingProducer producer(16384);
  const std::uint64_t total = 3000000;
  const pid_t child = in_child([&] {
    RingConsumer ring(producer.fd(), ProcessWatch(getppid()));
    ring.announce(ConsumerState::ready);
    const ConsumerResult result = consume_all(ring, total, 1 << 20);
    const bool good = result.bytes == total && result.wrong == 0;
    ring.announce(ConsumerState::finished, good ? 0 : 5, good ? "" : "wrong bytes");
  });
  wait_until_ready(producer);

  for (std::uint64_t written = 0; written < total; written += 300000) {
    REQUIRE(producer.write(piece_of_stream(written, 300000)));
    producer.publish();
  }
  const ConsumerReport report = producer.wait_while(ConsumerState::ready, milliseconds(20000));

  CHECK(report.state == ConsumerState::finished);
  CHECK(report.error == 0);
  CHECK(report.message.empty());
  CHECK(producer.consumer_gone());
  waitpid(child, nullptr, 0);
}

TEST_CASE("a refusal reaches the producer with its reason") {
  RingProducer producer(4096);
  RingConsumer consumer(producer.fd(), ProcessWatch(getpid()));

  consumer.announce(ConsumerState::refused, 17, "somebody else is here");
  const ConsumerReport report = producer.wait_while(ConsumerState::starting, milliseconds(1000));

  CHECK(report.state == ConsumerState::refused);
  CHECK(report.error == 17);
  CHECK(report.message == "somebody else is here");
}

TEST_CASE("memory that is no ring is refused") {
  const int fd = memfd_create("test", 0);
  REQUIRE(ftruncate(fd, 4096) == 0);
  CHECK_THROWS_AS(RingConsumer(fd, ProcessWatch(getpid())), Trouble);
  REQUIRE(ftruncate(fd, 1 << 20) == 0);
  CHECK_THROWS_AS(RingConsumer(fd, ProcessWatch(getpid())), Trouble);
  close(fd);
}

TEST_CASE("the death of a process that is not our child is seen") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = in_child([&] {
    close(ends[0]);
    pause();
  });
  const ProcessWatch watch(child);
  CHECK_FALSE(watch.dead());
  kill(child, SIGKILL);
  close(ends[1]);
  char nothing = 0;
  CHECK(read(ends[0], &nothing, 1) == 0);  // its descriptors close as it dies
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);

  CHECK(watch.dead());  // although nobody has collected it yet
  waitpid(child, nullptr, 0);
  CHECK(ProcessWatch(child).dead());
}
