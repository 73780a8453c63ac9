// SPDX-License-Identifier: Apache-2.0
// The mesh dp x tp, and collectives between processes of one machine through shared memory. A sum
// is always taken in the order of the members, so every member gets the same bits.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

struct GroupMemory;  // a barrier and a buffer for each member

class Group {
 public:
  Group() = default;
  Group(GroupMemory* memory, int size, int member)
      : memory_(memory), size_(size), member_(member) {}

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int member() const { return member_; }

  void barrier() const;
  void sum(std::span<float> values) const;
  // The values of all members, one after the other.
  [[nodiscard]] std::vector<float> gather(std::span<const float> values) const;
  // This member's part of the sum, of `size` equal parts.
  [[nodiscard]] std::vector<float> sum_and_scatter(std::vector<float> values) const;

 private:
  GroupMemory* memory_ = nullptr;
  int size_ = 1;
  int member_ = 0;
};

struct Mesh {
  int rank = 0;
  int ranks = 1;
  Group world;
  Group dp;
  Group tp;
};

// Runs `body` in dp * tp processes: forked from this one, or this one alone is one of them, when a
// launcher has set RANK and WORLD_SIZE. Returns the exit code.
int run_ranks(int dp, int tp, const std::function<int(const Mesh&)>& body);
