// SPDX-License-Identifier: Apache-2.0
// See device_completion.hpp.
#include "capture/device_completion.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace ttrace {
namespace {

// Between two looks at an event, longer while it does not come: it may stand behind seconds of
// work. Waiting inside the driver instead could not be given up.
constexpr std::chrono::microseconds kFirstLook{50};
constexpr std::chrono::microseconds kLastLook{1000};

}  // namespace

DeviceCompletion::DeviceCompletion(RingProducer& ring, const DeviceOps& ops)
    : ring_(ring), ops_(ops) {
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "ttrace-copies");
}

DeviceCompletion::~DeviceCompletion() {
  if (thread_.joinable()) (void)stop(std::chrono::milliseconds(0));
}

void DeviceCompletion::add(const LateBytes& bytes) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(bytes);
  if (waiting_.size() == 1) changed_.notify_all();
}

bool DeviceCompletion::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return waiting_.empty();
  {
    std::unique_lock lock(mutex_);
    goal_ = Goal::drain;
    changed_.notify_all();
    for (bool moved = true; moved && !waiting_.empty();) {
      const std::uint64_t before = settled_;
      moved =
          changed_.wait_for(lock, patience, [&] { return waiting_.empty() || settled_ != before; });
    }
    goal_ = Goal::give_up;
    changed_.notify_all();
  }
  thread_.join();
  return waiting_.empty();
}

void DeviceCompletion::run() {
  std::chrono::microseconds look = kFirstLook;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || goal_ != Goal::run; });
    if (waiting_.empty() || goal_ == Goal::give_up) return;
    const LateBytes bytes = waiting_.front();
    lock.unlock();
    const bool ended = finish(bytes);
    if (!ended) std::this_thread::sleep_for(look);
    look = ended ? kFirstLook : std::min(2 * look, kLastLook);
    lock.lock();
    if (!ended) continue;
    waiting_.pop_front();
    ++settled_;
    if (goal_ != Goal::run) changed_.notify_all();
  }
}

bool DeviceCompletion::finish(const LateBytes& bytes) {
  if (bytes.event != nullptr && !copy_ended(bytes)) return false;
  if (bytes.error != 0) verdict_ = static_cast<Verdict>(bytes.error);
  if (!bytes.verdict.empty()) {
    const auto* from = reinterpret_cast<const std::byte*>(&verdict_) + bytes.verdict_at;
    std::memcpy(bytes.verdict.data(), from, bytes.verdict.size());
    if (bytes.verdict_at + bytes.verdict.size() == sizeof verdict_) verdict_ = 0;
  }
  ring_.settle();
  return true;
}

bool DeviceCompletion::copy_ended(const LateBytes& bytes) {
  int mode = 0;
  int yes = 0;
  int error = ops_.enter(bytes.context, &mode);
  if (error == 0) {
    error = ops_.event_done(bytes.event, &yes);
    ops_.leave(mode);
  }
  if (error != 0) verdict_ = static_cast<Verdict>(error);
  if (error == 0 && yes == 0) return false;
  if (bytes.ended != nullptr) bytes.ended->fetch_add(1, std::memory_order_release);
  return true;
}

}  // namespace ttrace
