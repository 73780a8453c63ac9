// SPDX-License-Identifier: Apache-2.0
// The mesh pp x dp x tp, the processes that stand in it, and their groups. What a group
// communicates through is a Transport: shared memory here, NCCL in samples/nccl.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

// From this member to `peer`, and the other way round. `module` is who sends or receives.
struct Outgoing {
  int peer = 0;
  int microbatch = 0;
  std::string module;
  std::span<const float> values;
};
struct Incoming {
  int peer = 0;
  int microbatch = 0;
  std::string module;
  std::span<float> values;
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual void sum(std::span<float> values) = 0;
  // `waits` is false for a caller who reads the result without waiting for it.
  virtual std::vector<float> gather(std::span<const float> values, bool waits) = 0;
  virtual std::vector<float> sum_and_scatter(std::span<const float> values) = 0;
  virtual void exchange(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) = 0;
};

class Group {
 public:
  Group() = default;
  Group(std::shared_ptr<Transport> transport, int size, int member)
      : transport_(std::move(transport)), size_(size), member_(member) {}

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int member() const { return member_; }

  void sum(std::span<float> values) const {
    if (transport_) transport_->sum(values);
  }
  // The values of all members, one after the other.
  [[nodiscard]] std::vector<float> gather(std::span<const float> values, bool waits = true) const {
    return transport_ ? transport_->gather(values, waits)
                      : std::vector<float>(values.begin(), values.end());
  }
  // This member's part of the sum, of `size` equal parts.
  [[nodiscard]] std::vector<float> sum_and_scatter(std::span<const float> values) const {
    return transport_ ? transport_->sum_and_scatter(values)
                      : std::vector<float>(values.begin(), values.end());
  }
  // Both at once: two members may send to each other.
  void exchange(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) const {
    if (transport_ && (out || in)) transport_->exchange(out, in);
  }

 private:
  std::shared_ptr<Transport> transport_;  // none: a group of one that needs no copies
  int size_ = 1;
  int member_ = 0;
};

struct MeshSizes {
  int pp = 1;
  int dp = 1;
  int tp = 1;

  [[nodiscard]] int ranks() const { return pp * dp * tp; }
};

struct Mesh {
  int rank = 0;
  MeshSizes sizes;
  Group world;
  Group pp;
  Group dp;
  Group tp;
};

// Runs `body` in a process for each place of the mesh: forked from this one, or this one alone is
// one of them, when a launcher has set RANK and WORLD_SIZE. Returns the exit code.
int run_ranks(const MeshSizes& sizes, const std::function<int(const Mesh&)>& body);
