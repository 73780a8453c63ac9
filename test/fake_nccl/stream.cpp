// SPDX-License-Identifier: Apache-2.0
// See stream.hpp.
#include "test/fake_nccl/stream.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

namespace fake {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

bool lazy() {
  static const bool asked = number_from("FAKE_CUDA_LAZY", 0) != 0;
  return asked;
}

std::chrono::milliseconds patience() {
  static const std::chrono::milliseconds time(number_from("FAKE_CUDA_PATIENCE_MS", 2000));
  return time;
}

void random_delay() {
  static const std::uint64_t longest = number_from("FAKE_CUDA_DELAY_US", 200);
  if (lazy() || longest == 0) return;
  thread_local std::minstd_rand random(std::random_device{}());
  std::this_thread::sleep_for(std::chrono::microseconds(random() % (longest + 1)));
}

// Never destroyed: streams outlive main in programs that end without tidying up.
std::mutex& list_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::vector<std::shared_ptr<Stream>>& list() {
  static auto* streams = new std::vector<std::shared_ptr<Stream>>;
  return *streams;
}

}  // namespace

std::shared_ptr<Stream> Stream::create(Kind kind) {
  std::shared_ptr<Stream> stream(new Stream(kind));
  std::thread([stream] { stream->run(); }).detach();
  const std::lock_guard guard(list_mutex());
  list().push_back(stream);
  return stream;
}

std::uint64_t Stream::enqueue(std::function<void()> work) {
  const std::lock_guard guard(mutex_);
  queue_.push_back({std::move(work), std::chrono::steady_clock::now()});
  changed_.notify_all();
  return ++enqueued_;
}

std::uint64_t Stream::end() const {
  const std::lock_guard guard(mutex_);
  return enqueued_;
}

bool Stream::passed(std::uint64_t position) const {
  const std::lock_guard guard(mutex_);
  return done_ >= position;
}

void Stream::demand(std::uint64_t position) {
  const std::lock_guard guard(mutex_);
  demanded_ = std::max(demanded_, position);
  changed_.notify_all();
}

void Stream::wait(std::uint64_t position) {
  demand(position);
  look_on(position);
}

void Stream::look_on(std::uint64_t position) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= position; });
}

void Stream::enqueue_wait(const std::shared_ptr<Stream>& other, std::uint64_t position) {
  if (other.get() == this || other->passed(position)) return;
  const bool passive = kind_ == Kind::passive;
  enqueue([=] { passive ? other->look_on(position) : other->wait(position); });
}

void Stream::retire() {
  const std::lock_guard guard(mutex_);
  retired_ = true;
  demanded_ = enqueued_;
  changed_.notify_all();
}

// Waits until the first work of the queue may run; false when there will be none.
bool Stream::may_start(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (queue_.empty()) {
      if (retired_) return false;
      changed_.wait(lock);
    } else if (!lazy() || kind_ == Kind::passive || demanded_ > done_) {
      return true;
    } else {
      const auto latest = queue_.front().enqueued + patience();
      if (std::chrono::steady_clock::now() >= latest) return true;
      changed_.wait_until(lock, latest);
    }
  }
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (may_start(lock)) {
    Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    random_delay();
    work.run();
    work.run = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

std::shared_ptr<Stream> null_stream() {
  static auto* stream = new std::shared_ptr<Stream>(Stream::create(Stream::Kind::blocking));
  return *stream;
}

std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all = {null_stream()};
  const std::lock_guard guard(list_mutex());
  for (const auto& stream : list()) {
    if (stream != all[0]) all.push_back(stream);
  }
  return all;
}

void forget(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard guard(list_mutex());
  std::erase(list(), stream);
}

void demand_all() {
  for (const auto& stream : all_streams()) stream->demand(stream->end());
}

void wait_for_all() {
  demand_all();
  for (const auto& stream : all_streams()) stream->wait(stream->end());
}

std::uint64_t submit(const std::shared_ptr<Stream>& stream, std::function<void()> work) {
  const std::shared_ptr<Stream> null = null_stream();
  if (stream == null) {
    for (const auto& other : all_streams()) {
      if (other->blocking()) null->enqueue_wait(other, other->end());
    }
  } else if (stream->blocking()) {
    stream->enqueue_wait(null, null->end());
  }
  return stream->enqueue(std::move(work));
}

}  // namespace fake
