// SPDX-License-Identifier: Apache-2.0
// Programs on NCCL of several threads, each of which is a member with a device of its own. See
// scenarios.cpp.
#include <atomic>
#include <mutex>

#include "test/capture/nccl/inputs.hpp"

namespace {

using namespace rig;

// Several communicators of one process, each on a thread and a stream of its own.
void threads() {
  const int size = 4;
  ncclComm_t comms[size];
  NCCL(ncclCommInitAll(comms, size, nullptr));
  std::vector<std::thread> workers;
  for (int member = 0; member < size; ++member) {
    workers.emplace_back([member, comm = comms[member]] {
      CUDA(cudaSetDevice(member));
      Stream s;
      Buffer<float> data(kCount);  // not in the loop: cudaFree would wait for the other threads
      for (int round = 0; round < 20; ++round) {
        data.fill([&](std::size_t i) { return input(member, i) + round; });
        NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
        s.wait();
        data.check("sum of threads",
                   [&](std::size_t i) { return 4 * (1 + static_cast<double>(i) + round) + 60; });
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
}

// Asks about every communicator all the time, as the watchdogs of frameworks do.
class Watchdog {
 public:
  Watchdog() : thread_([this] { run(); }) {}
  ~Watchdog() {
    ended_ = true;
    thread_.join();
  }
  void add(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
  }
  // It must not be asked about while it ends.
  void remove(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    std::erase(comms_, comm);
  }

 private:
  void run() {
    while (!ended_) {
      {
        const std::lock_guard lock(mutex_);
        for (const ncclComm_t comm : comms_) {
          ncclResult_t state = ncclSuccess;
          NCCL(ncclCommGetAsyncError(comm, &state));
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::mutex mutex_;
  std::vector<ncclComm_t> comms_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// Another thread learns that the call has been enqueued, once, before this one is back from it.
void asked_elsewhere() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, rig::world(), rig::shared_id("world"), rig::rank(), &config);
  const auto settle = [comm] {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
      NCCL(ncclCommGetAsyncError(comm, &state));
    }
  };
  settle();
  Stream s;
  Buffer<float> data(kCount, own());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    settle();
  });
  ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, s.handle);
  other.join();
  CUDA(cudaMemsetAsync(data.data(), 0, kCount * sizeof(float), s.handle));
  s.wait();
  NCCL(ncclCommDestroy(comm));
}

constexpr int kMembers = 3;

// One member's part. Everything in it happens at the same time in the others.
class Worker {
 public:
  Worker(int member, ncclComm_t all, ncclUniqueId id, Watchdog& watchdog)
      : member_(member), all_(all), watchdog_(watchdog) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclCommInitRankConfig(&late_, kMembers, id, member, &config);
    watchdog_.add(late_);
    settle();
    watchdog_.add(all_);
  }
  ~Worker() {
    watchdog_.remove(all_);
    watchdog_.remove(late_);
    NCCL(ncclCommDestroy(late_));
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void round(int number) {
    const auto mine = [&](std::size_t i) { return input(member_, i) + number; };
    const auto sum_of = [&](double members, double tens) {
      return [=](std::size_t i) { return members * (1 + static_cast<double>(i) + number) + tens; };
    };
    data_.fill(mine);
    reduce(data_.data(), data_.data(), ncclSum, all_);
    check("sum", data_, sum_of(3, 30));
    data_.fill(mine);
    exchange();
    const int before = (member_ + 2) % kMembers;
    check("received", got_, [&](std::size_t i) { return input(before, i) + number; });
    check("most", most_, sum_of(1, 20));
    divide();
    const bool even = member_ % 2 == 0;
    check("sum of some", got_, even ? sum_of(2, 20) : sum_of(1, 10));
    halve();
    check("half of each", got_, sum_of(1.5, 15));
    ncclAllReduce(data_.data(), got_.data(), kCount, ncclFloat32, ncclMin, late_, stream_.handle);
    settle();
    check("least", got_, sum_of(1, 0));
  }

 private:
  template <class Value>
  void check(const char* what, Buffer<float>& buffer, const Value& value) {
    stream_.wait();
    buffer.check(what, value);
  }
  void reduce(const float* from, float* to, ncclRedOp_t op, ncclComm_t comm) {
    NCCL(ncclAllReduce(from, to, kCount, ncclFloat32, op, comm, stream_.handle));
  }
  void exchange() {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(data_.data(), kCount, ncclFloat32, (member_ + 1) % kMembers, all_,
                  stream_.handle));
    reduce(data_.data(), most_.data(), ncclMax, all_);
    NCCL(
        ncclRecv(got_.data(), kCount, ncclFloat32, (member_ + 2) % kMembers, all_, stream_.handle));
    NCCL(ncclGroupEnd());
  }
  void divide() {
    ncclComm_t some = nullptr;
    NCCL(ncclCommSplit(all_, member_ % 2, -member_, &some, nullptr));
    reduce(data_.data(), got_.data(), ncclSum, some);
    NCCL(ncclCommDestroy(some));
  }
  void halve() {
    ncclRedOp_t op;
    float half = 0.5f;
    NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, all_));
    reduce(data_.data(), got_.data(), op, all_);
    NCCL(ncclRedOpDestroy(op, all_));
  }
  void settle() {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      NCCL(ncclCommGetAsyncError(late_, &state));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    NCCL(state);
  }

  const int member_;
  const ncclComm_t all_;
  Watchdog& watchdog_;
  ncclComm_t late_ = nullptr;  // does not block
  Stream stream_;
  Buffer<float> data_{kCount}, got_{kCount}, most_{kCount};
};

// Iteration 0 has `kRounds` of every worker. The later ones begin and end while they work.
void busy() {
  constexpr int kRounds = 4;
  rig::expect(MARK(ttrace_open)(nullptr) == 0, "open");
  ncclComm_t comms[kMembers];
  ncclUniqueId id;
  NCCL(ncclCommInitAll(comms, kMembers, nullptr));
  NCCL(ncclGetUniqueId(&id));
  MARK(ttrace_begin_iteration)(0);
  std::atomic<int> whole{0}, ended{0};
  {
    Watchdog watchdog;
    std::vector<std::thread> threads;
    for (int member = 0; member < kMembers; ++member) {
      threads.emplace_back([&, member] {
        CUDA(cudaSetDevice(member));
        MARK(ttrace_push_scope)(("worker." + std::to_string(member)).c_str());
        Worker worker(member, comms[member], id, watchdog);
        for (int number = 0; number < kRounds; ++number) worker.round(number);
        for (++whole; whole < kMembers + 1;) std::this_thread::yield();
        for (int number = 0; number < kRounds; ++number) worker.round(number);
        for (++ended; ended < kMembers;) std::this_thread::yield();
      });
    }
    while (whole < kMembers) std::this_thread::yield();
    MARK(ttrace_end_iteration)();
    ++whole;
    for (int iteration = 1; ended < kMembers; ++iteration) {
      MARK(ttrace_begin_iteration)(iteration);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      MARK(ttrace_end_iteration)();
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
  rig::expect(MARK(ttrace_close)() == 0, "close");
}

}  // namespace

std::vector<rig::Scenario> rig::thread_scenarios() {
  return {{"threads", threads}, {"asked_elsewhere", asked_elsewhere}, {"busy", busy}};
}
