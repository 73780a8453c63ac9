// SPDX-License-Identifier: Apache-2.0
// Inference looks at a few elements of each tensor only: 16 runs of 16 neighbours per shard, at
// positions that depend on the tensor's class and local shape and on nothing else, so that shards
// of equal shape are sampled alike and a second run of the program decides the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// splitmix64: the next of a sequence that any seed starts well.
[[nodiscard]] std::uint64_t next_random(std::uint64_t& state);
[[nodiscard]] std::uint64_t seed_of(std::string_view text);

// Row-major positions in a shard, ascending; all of them when the shard is small.
[[nodiscard]] std::vector<std::uint64_t> sample_positions(std::uint64_t elements,
                                                          std::uint64_t seed);

// Whether the record's bytes are in the trace.
[[nodiscard]] bool has_bytes(const Shard& shard);

// Single elements of a logical tensor, whole or in shards, by row-major index.
class ElementReader {
 public:
  explicit ElementReader(const LogicalTensor& tensor);
  [[nodiscard]] bool readable() const { return !parts_.empty(); }
  // nullopt where no shard holds the element.
  [[nodiscard]] std::optional<double> at(std::uint64_t index) const;
  void release() const;  // lets the touched pages go

 private:
  struct Part {
    const std::byte* data = nullptr;
    DType dtype = DType::float32;
    Box box;
    std::uint64_t first = 0;  // where the box starts in the shard
    Shape strides;            // of the shard's elements, by logical dimension
  };
  void add_pieces(const PlacedShard& placed);
  [[nodiscard]] std::optional<double> read(const Part& part) const;

  const LogicalTensor& tensor_;
  std::vector<Part> parts_;
  mutable Shape place_;           // of the element in question
  mutable std::size_t last_ = 0;  // neighbours mostly lie in the same part
};

}  // namespace ttrace
