// SPDX-License-Identifier: Apache-2.0
// Streams of the fake CUDA runtime: queues that run in order, each on a thread of its own, and
// late. FAKE_CUDA_LAZY=1   work waits until someone waits for it (a synchronisation of the stream
// or of an
//                    event, another stream's wait, a query, the end of the stream), or at the
//                    latest for FAKE_CUDA_PATIENCE_MS (2000): what the program forgot to wait for
//                    is then visibly not there, every time.
// FAKE_CUDA_DELAY_US otherwise: each piece of work starts after a random time up to this (200).
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fake {

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // Blocking: ordered with the null stream, as streams of cudaStreamCreate are. Passive: an
  // onlooker's, whose work runs as early as it can but never makes another stream's work run.
  enum class Kind { blocking, independent, passive };
  static std::shared_ptr<Stream> create(Kind kind);

  // Position after the work: wait(position) returns when it has run.
  std::uint64_t enqueue(std::function<void()> work);
  std::uint64_t end() const;  // position after everything enqueued so far
  bool passed(std::uint64_t position) const;
  void demand(std::uint64_t position);   // run up to there, without waiting
  void wait(std::uint64_t position);     // demand, and wait; not for work of this stream itself
  void look_on(std::uint64_t position);  // wait until somebody has made it run
  void enqueue_wait(const std::shared_ptr<Stream>& other, std::uint64_t position);
  void retire();  // no more work will come: the thread ends after the rest
  bool blocking() const { return kind_ == Kind::blocking; }

 private:
  struct Work {
    std::function<void()> run;
    std::chrono::steady_clock::time_point enqueued;
  };
  explicit Stream(Kind kind) : kind_(kind) {}
  void run();
  bool may_start(std::unique_lock<std::mutex>& lock);

  const Kind kind_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::uint64_t enqueued_ = 0, done_ = 0, demanded_ = 0;
  bool retired_ = false;
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Stream> stream;  // none: never recorded
  std::uint64_t position = 0;
};

std::shared_ptr<Stream> null_stream();
std::vector<std::shared_ptr<Stream>> all_streams();  // the null stream first
void forget(const std::shared_ptr<Stream>& stream);
void demand_all();
void wait_for_all();

// Work in the order that the legacy null stream asks for.
std::uint64_t submit(const std::shared_ptr<Stream>& stream, std::function<void()> work);

}  // namespace fake
