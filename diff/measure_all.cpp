// SPDX-License-Identifier: Apache-2.0
// See measure_all.hpp.
#include "diff/measure_all.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "diff/in_parallel.hpp"
#include "diff/parts.hpp"

namespace ttrace {
namespace {

// Parts of tensors that are equal need not be remembered; nor, beyond these, those of many ranks.
constexpr std::size_t kMostShards = 1024;

class Crew {
 public:
  Crew(const Alignment& alignment, const Seeds& seeds, const Backend& backend,
       const MeasuringOptions& options)
      : pairs_(alignment.pairs),
        seeds_(seeds),
        backend_(backend),
        options_(options),
        results_(pairs_.size()) {
    const auto size = [this](std::size_t i) { return element_count(pairs_[i].reference->shape); };
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].same_as != kNoPair) continue;
      total_ += size(i);
      order_.push_back(i);
    }
    // The largest first: its threads are the last that would have nothing else to do.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t one, std::size_t other) { return size(one) > size(other); });
  }

  std::vector<PairMetrics> run() {
    const std::uint64_t tasks = std::max<std::uint64_t>(order_.size(), total_ / kWorthAThread);
    on_threads(cold() ? kDiskThreads : threads_for(tasks), [this] {
      try {
        for (std::optional<Task> task = take(); task; task = take()) do_task(*task);
      } catch (...) {
        failed_ = true;
        throw;
      }
    });
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].same_as != kNoPair) results_[i] = results_[pairs_[i].same_as];
    }
    return std::move(results_);
  }

 private:
  static constexpr std::uint64_t kWorthAThread = std::uint64_t{1} << 20;  // elements
  // Requests that keep a disk busy; threads wait for it most of the time.
  static constexpr unsigned kDiskThreads = 8;

  // Whether the largest tensor is to be read from the disk.
  [[nodiscard]] bool cold() const {
    constexpr std::uint64_t kEnough = std::uint64_t{1} << 20;
    if (!options_.read_once || order_.empty()) return false;
    const Pair& pair = pairs_[order_.front()];
    for (const LogicalTensor* side : {pair.reference, pair.candidate}) {
      if (kept_of(*side) != RecordKind::full || side->shards.empty()) return false;
      const Shard& shard = side->shards.front().shard;
      const std::uint64_t size = std::min(shard.record->bytes, kEnough);
      if (!shard.segment->resident(*shard.record, 0, size)) return true;
    }
    return false;
  }

  // A pair at work.
  struct Job {
    Job(std::size_t pair_in, Measurement measurement_in)
        : pair(pair_in), measurement(std::move(measurement_in)), left(measurement.stretches()) {}
    std::size_t pair;
    Measurement measurement;
    std::size_t next = 0;  // stretch that nobody has taken; guarded
    std::atomic<std::size_t> left;
  };
  struct Task {
    std::shared_ptr<Job> job;
    std::size_t stretch;
  };

  // Stretches of pairs that were begun first, so that few are open.
  std::optional<Task> take() {
    while (!failed_) {
      std::size_t pair = 0;
      {
        const std::lock_guard lock(mutex_);
        if (!open_.empty()) {
          Task task{open_.front(), open_.front()->next++};
          if (open_.front()->next == open_.front()->measurement.stretches()) open_.pop_front();
          return task;
        }
        if (next_ == order_.size()) return std::nullopt;
        pair = order_[next_++];
      }
      const auto job = std::make_shared<Job>(pair, begin(pairs_[pair]));
      if (job->left == 0) {
        finish(*job);
        continue;
      }
      const std::lock_guard lock(mutex_);
      job->next = 1;
      if (job->left > 1) open_.push_back(job);
      return Task{job, 0};
    }
    return std::nullopt;
  }

  [[nodiscard]] Measurement begin(const Pair& pair) const {
    return {*pair.reference,
            *pair.candidate,
            backend_,
            {.scale = scale_for(pair.key, seeds_),
             .sample = 0,
             .read_once = options_.read_once,
             .trust_hash = options_.trust_hash}};
  }

  void do_task(const Task& task) {
    task.job->measurement.measure(task.stretch);
    if (--task.job->left == 0) finish(*task.job);
  }

  void finish(Job& job) {
    PairMetrics& result = results_[job.pair];
    result = job.measurement.finish();
    const bool odd = !result.shards.empty() && result.shards.back().odd_copy;
    const bool equal = result.total.unequal == 0 && !odd;
    if (equal || result.shards.size() > kMostShards) result.shards.clear();
    result.shards.shrink_to_fit();
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    done_ += element_count(pairs_[job.pair].reference->shape);
    options_.progress(done_, total_);
  }

  const std::vector<Pair>& pairs_;
  const Seeds& seeds_;
  const Backend& backend_;
  const MeasuringOptions& options_;
  std::vector<PairMetrics> results_;
  std::vector<std::size_t> order_;
  std::atomic<bool> failed_{false};
  std::uint64_t total_ = 0;
  std::mutex mutex_;                       // of what follows
  std::deque<std::shared_ptr<Job>> open_;  // with stretches that nobody has taken
  std::size_t next_ = 0;                   // of order_
  std::uint64_t done_ = 0;
};

}  // namespace

std::vector<PairMetrics> measure_all(const Alignment& alignment, const Seeds& seeds,
                                     const Backend& backend, const MeasuringOptions& options) {
  return Crew(alignment, seeds, backend, options).run();
}

}  // namespace ttrace
