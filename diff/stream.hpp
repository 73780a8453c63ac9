// SPDX-License-Identifier: Apache-2.0
// Compares two logical tensors without ever holding one: walks the places where a piece of the
// reference and a piece of the candidate overlap, in contiguous runs over mapped bytes, and lets
// pages go after every few MiB, so that memory does not grow with the tensors.
// Replicas are compared once; a replica that is not bit-equal to its original is measured beside
// it. Shards that hold the same part and have equal hashes are equal and are not read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "diff/backend.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

// One candidate shard against the reference's part of the same place.
struct ShardMetrics {
  std::int32_t rank = 0;
  Sums sums;
  double max_error = 0;
  std::uint64_t count = 0;
  std::uint64_t unequal = 0;
  std::uint64_t nonfinite_mismatch = 0;
  bool odd_copy = false;  // a replica unlike its original; not part of the total
};

enum class Evidence : std::uint8_t {
  read,    // every element was read
  hash,    // all shards have equal hashes; nothing was read
  norms,   // a side kept statistics only: the sums of squares and NaN counts are all there is
  nothing  // a side kept hashes only, and they differ or belong to other parts
};

struct PairMetrics {
  Evidence evidence = Evidence::read;
  DType type = DType::float32;  // both sides were compared as this
  Metrics total;
  std::vector<ShardMetrics> shards;  // of the candidate; one entry: the shard is the whole
};

struct MeasureOptions {
  double scale = 1;          // multiplies the candidate
  std::uint64_t sample = 0;  // elements of each part that are looked at; 0: all
  bool read_once = false;    // nobody reads it again, so that the page cache need not have it
  bool trust_hash = true;    // false: shards with equal hashes are read all the same
};

// A comparison in stretches that several threads can share; results do not depend on who measures
// which.
class Measurement {
 public:
  Measurement(const LogicalTensor& reference, const LogicalTensor& candidate,
              const Backend& backend, const MeasureOptions& options);
  ~Measurement();
  Measurement(Measurement&&) noexcept;

  [[nodiscard]] std::size_t stretches() const;
  void measure(std::size_t stretch);   // once each
  [[nodiscard]] PairMetrics finish();  // once, after all

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The tensors have the same shape and types of the same class.
[[nodiscard]] PairMetrics measure(const LogicalTensor& reference, const LogicalTensor& candidate,
                                  const Backend& backend, const MeasureOptions& options = {});

}  // namespace ttrace
