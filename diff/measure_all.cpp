// SPDX-License-Identifier: Apache-2.0
// See measure_all.hpp.
#include "diff/measure_all.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace ttrace {
namespace {

// Each thread keeps a few MiB of mapped pages resident.
constexpr unsigned kMostThreads = 4;
// Parts of tensors that are equal need not be remembered; nor, beyond these, those of many ranks.
constexpr std::size_t kMostShards = 1024;

class Crew {
 public:
  Crew(const Alignment& alignment, const Seeds& seeds, const Backend& backend,
       const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : pairs_(alignment.pairs),
        seeds_(seeds),
        backend_(backend),
        progress_(progress),
        results_(pairs_.size()) {
    const auto size = [this](std::size_t i) { return element_count(pairs_[i].reference->shape); };
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].same_as != kNoPair) continue;
      total_ += size(i);
      order_.push_back(i);
    }
    // The largest first: the last to end must not be a large one that began last.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t one, std::size_t other) { return size(one) > size(other); });
  }

  std::vector<PairMetrics> run() {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const auto count =
        static_cast<unsigned>(std::min<std::size_t>(order_.size(), std::min(cores, kMostThreads)));
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].same_as != kNoPair) results_[i] = results_[pairs_[i].same_as];
    }
    return std::move(results_);
  }

 private:
  void work() {
    try {
      for (std::size_t at = next_++; at < order_.size() && !failed_; at = next_++) {
        measure_one(order_[at]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void measure_one(std::size_t i) {
    const Pair& pair = pairs_[i];
    PairMetrics& result = results_[i];
    result = measure(*pair.reference, *pair.candidate, backend_,
                     {.scale = scale_for(pair.key, seeds_), .sample = 0});
    const bool odd = !result.shards.empty() && result.shards.back().odd_copy;
    const bool equal = result.total.unequal == 0 && !odd;
    if (equal || result.shards.size() > kMostShards) result.shards.clear();
    result.shards.shrink_to_fit();
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += element_count(pair.reference->shape);
    progress_(done_, total_);
  }

  const std::vector<Pair>& pairs_;
  const Seeds& seeds_;
  const Backend& backend_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::vector<PairMetrics> results_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> next_{0};  // of order_
  std::atomic<bool> failed_{false};
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::exception_ptr error_;
  std::mutex mutex_;
};

}  // namespace

std::vector<PairMetrics> measure_all(
    const Alignment& alignment, const Seeds& seeds, const Backend& backend,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  return Crew(alignment, seeds, backend, progress).run();
}

}  // namespace ttrace
