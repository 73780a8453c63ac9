// SPDX-License-Identifier: Apache-2.0
// Streams and events of the fake device.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "capture/device_ops.hpp"

namespace fake_device {

// A point in the work of a stream.
class Moment {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  bool reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

class Event {
 public:
  explicit Event(int context) : context_(context), latest_(std::make_shared<Moment>()) {
    latest_->reach();  // never recorded: nothing to wait for
  }
  [[nodiscard]] int context() const { return context_; }
  void set(std::shared_ptr<Moment> moment) {
    const std::lock_guard lock(mutex_);
    latest_ = std::move(moment);
  }
  [[nodiscard]] std::shared_ptr<Moment> latest() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  int context_;
  std::mutex mutex_;
  std::shared_ptr<Moment> latest_;
};

class Stream {
 public:
  explicit Stream(int context) : context_(context), thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int context() const { return context_; }
  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void hold(bool yes) {
    const std::lock_guard lock(mutex_);
    held_ = yes;
    changed_.notify_all();
  }

  std::atomic<bool> capturing{false};
  static inline std::atomic<unsigned> longest_pause{0};

 private:
  void run() {
    std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(this) >> 4));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !held_ && (ended_ || !work_.empty()); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (const unsigned longest = longest_pause; longest != 0 && random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
      work();
      lock.lock();
    }
  }

  int context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool held_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace fake_device
