// SPDX-License-Identifier: Apache-2.0
// See in_parallel.hpp.
#include "diff/in_parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ttrace {
namespace {

constexpr unsigned kMostThreads = 4;

}  // namespace

unsigned threads_for(std::size_t tasks) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<unsigned>(std::min<std::size_t>(tasks, std::min(cores, kMostThreads)));
}

void on_threads(unsigned threads, const std::function<void()>& work) {
  std::mutex mutex;
  std::exception_ptr error;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(guarded);
  guarded();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  on_threads(threads_for(count), [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  });
}

}  // namespace ttrace
