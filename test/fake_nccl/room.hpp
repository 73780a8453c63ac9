// SPDX-License-Identifier: Apache-2.0
// Shared memory where the members of one communicator meet: barriers, a slot a member for pieces of
// its data, and a channel for each ordered pair. Processes of one machine; threads of one process
// too.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fake {

constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
constexpr std::size_t kChannelBytes = std::size_t{1} << 16;
constexpr int kMostMembers = 64;

struct Channel {
  std::atomic<std::uint64_t> written, read;
  char ring[kChannelBytes];
};

class Room {
 public:
  // Returns when all members are there; none after an abort, a timeout (FAKE_NCCL_TIMEOUT seconds,
  // 60) or the death of one that is waited for. `aborted` stays the caller's.
  static std::shared_ptr<Room> open(const std::string& name, int member, int size,
                                    const std::atomic<bool>& aborted);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Data and calls that block the host have barriers of their own: a stream may be late.
  enum Kind { kData, kHost, kKinds };
  bool meet(Kind kind);
  char* slot(int member) const;
  Channel& channel(int from, int to) const;
  std::atomic<std::int64_t>& cell(int member, int which) const;  // 2 numbers for host calls

  // Whether to go on waiting for that member; sleeps a little. `since` is when the waiting began.
  bool patient(std::chrono::steady_clock::time_point since, int awaited) const;

 private:
  struct Member;
  Room(void* memory, std::size_t bytes, int member, int size, const std::atomic<bool>& aborted);
  Member& at(int member) const;

  char* const memory_;
  const std::size_t bytes_;
  const int member_, size_;
  const std::atomic<bool>& aborted_;
  std::uint64_t rounds_[kKinds] = {};
};

}  // namespace fake
