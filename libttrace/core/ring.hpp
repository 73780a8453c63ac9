// SPDX-License-Identifier: Apache-2.0
// A stream of bytes through shared memory, from one producer process to one consumer process.
// `head` and `tail` only grow; the difference is what waits to be read. Because bytes stay in the
// memfd when the producer dies, the consumer still reads all that was published, and anything
// larger than the ring streams through it in pieces. Each side sleeps on a futex that the other one
// rings.
//
// A producer may also reserve room that somebody else fills later, a device's copy engine: the
// stream goes on behind it, and the consumer sees it as far as all before it is settled. A producer
// that dies thus loses what was not settled and what stands behind that.
//
// The producer sees the consumer's death by a robust mutex that the consumer holds as long as it
// lives: the kernel marks it, whatever killed the owner. The traced process keeps no descriptor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "libttrace/core/process_watch.hpp"

namespace ttrace {

struct RingHeader;

// Larger rings are not touched in advance: that takes about 1 ms a MiB.
inline constexpr std::uint64_t kMaxPopulatedRing = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMinRing = 4096;

enum class ConsumerState : std::uint32_t {
  starting = 0,
  ready = 1,
  refused = 2,   // it will not read; see error and message
  finished = 3,  // it has read all; error is 0 when nothing was lost
};

struct ConsumerReport {
  ConsumerState state = ConsumerState::starting;
  int error = 0;  // errno value
  std::string message;
};

// When the pages of a mapping are set up. Each page costs a fault, several times the copy into it:
// the traced process has them all at once, at the start; its writer as it comes to them.
enum class Pages : std::uint8_t { now, later };

// Owns one mapping of a ring's memory.
class RingMapping {
 public:
  RingMapping(int fd, std::size_t bytes, Pages pages);  // throws std::system_error
  ~RingMapping();
  RingMapping(const RingMapping&) = delete;
  RingMapping& operator=(const RingMapping&) = delete;

  [[nodiscard]] RingHeader& header() const;
  [[nodiscard]] std::byte* data() const;
  void hide_from_forks() const;

 private:
  void* address_;
  std::size_t bytes_;
};

class RingProducer {
 public:
  // Throws std::system_error: no memory, no file descriptor.
  explicit RingProducer(std::uint64_t capacity);
  ~RingProducer();
  RingProducer(const RingProducer&) = delete;
  RingProducer& operator=(const RingProducer&) = delete;

  [[nodiscard]] int fd() const { return fd_; }  // close-on-exec; -1 after close_fd()
  void close_fd();

  // Appends; blocks while the ring is full. False: the consumer is gone for good.
  [[nodiscard]] bool write(std::span<const std::byte> bytes);
  // Shows the consumer all that was written: once a message, not once a write.
  void publish();
  // Takes the next bytes of the stream, at most `want`, to be filled later; blocks while the ring
  // is full. Nothing from there on is shown until it is settled. Empty: the consumer is gone for
  // good.
  [[nodiscard]] std::span<std::byte> reserve(std::size_t want);
  // The oldest reservation is filled. From any thread.
  void settle();
  // Where all reservations lie.
  [[nodiscard]] std::span<std::byte> memory() const;

  [[nodiscard]] bool consumer_gone() const;
  // Waits at most `limit` for another state than `state`.
  [[nodiscard]] ConsumerReport wait_while(ConsumerState state,
                                          std::chrono::milliseconds limit) const;
  [[nodiscard]] ConsumerReport report() const;

 private:
  [[nodiscard]] bool wait_for_room();
  [[nodiscard]] std::span<std::byte> next_room(std::size_t want);
  void show_settled();

  int fd_;
  RingMapping mapping_;
  std::uint64_t capacity_;
  std::uint64_t written_ = 0;            // head, as it will be published
  std::mutex show_mutex_;                // of what follows, and of moving the consumer's head
  std::uint64_t to_show_ = 0;            // head, as it would be seen if all before it were settled
  std::deque<std::uint64_t> unsettled_;  // where reservations begin, oldest first
};

class RingConsumer {
 public:
  // Throws std::system_error, or Trouble when `fd` holds no ring of this version. To be used only
  // by the thread that made it: its death is what the producer notices.
  RingConsumer(int fd, ProcessWatch producer);
  ~RingConsumer();
  RingConsumer(const RingConsumer&) = delete;
  RingConsumer& operator=(const RingConsumer&) = delete;

  void announce(ConsumerState state, int error = 0, std::string_view message = {});

  // True as soon as peek() would not block; false after `limit`.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit);
  // The next bytes, at most `want`, in one piece of shared memory. Blocks until there are some;
  // empty when the producer is dead and all it published was read. Throws Trouble on a broken ring.
  [[nodiscard]] std::span<const std::byte> peek(std::size_t want);
  void consume(std::size_t bytes);
  // Copies and consumes; false at the end of the stream.
  [[nodiscard]] bool read(std::span<std::byte> into);

  [[nodiscard]] bool producer_dead() const { return producer_.dead(); }

 private:
  [[nodiscard]] std::uint64_t available() const;

  ProcessWatch producer_;
  RingMapping mapping_;
  std::uint64_t capacity_;
  std::uint64_t read_ = 0;  // tail
};

}  // namespace ttrace
