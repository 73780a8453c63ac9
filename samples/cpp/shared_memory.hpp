// SPDX-License-Identifier: Apache-2.0
// Collectives between processes of one machine through shared memory. A sum is always taken in the
// order of the members, so every member gets the same bits.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "samples/cpp/parallel.hpp"

inline constexpr int kMostMembers = 16;
inline constexpr std::size_t kPiece = 4096;  // floats of a member that are exchanged at a time

// Lies in memory that the processes share.
struct GroupMemory {
  std::atomic<int> ready;
  pthread_barrier_t barrier;
  float values[kMostMembers][kPiece];
  // From a member to the next one, and to the one before.
  struct Mailbox {
    std::atomic<int> full;
    float values[kPiece];
  } mailboxes[kMostMembers][2];
};

class SharedMemory final : public Transport {
 public:
  SharedMemory(GroupMemory* memory, int size, int member)
      : memory_(memory), size_(static_cast<std::size_t>(size)), member_(member) {}

  void sum(std::span<float> values) override;
  std::vector<float> gather(std::span<const float> values, bool waits) override;
  std::vector<float> sum_and_scatter(std::span<const float> values) override;
  void exchange(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) override;

 private:
  GroupMemory* memory_;
  std::size_t size_;
  int member_;
};
