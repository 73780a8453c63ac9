// SPDX-License-Identifier: Apache-2.0
// How well a layout explains what was observed: the share of sampled elements that agree with the
// reference where the layout says they belong. Agreement counts elements, so it survives one
// enormous channel, a large common mean and noise; it is blind to a constant factor, because a
// wrong factor must not lose the layout (the judge, who comes later, is not blind to it).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "libttrace/inference_family.hpp"
#include "libttrace/inference_sampling.hpp"

namespace ttrace {

// One tensor of a class: the shards that are looked at, and what they should add up to.
struct Observation {
  const LogicalTensor* reference = nullptr;
  std::vector<const Shard*> shards;
  const Documents* documents = nullptr;  // of its micro-batch
};

// Shards at the coordinates 0, 1 and last of one axis at a time, and the one that is last on all:
// enough to tell the members of the family apart.
[[nodiscard]] std::vector<const Shard*> representative_shards(const std::vector<Shard>& shards,
                                                              const RankMesh& mesh);

// What the samples say about one hypothesis.
struct Marks {
  std::vector<std::uint8_t> samples;   // in the order of the ballot: silent, agrees or differs
  std::vector<std::uint64_t> indices;  // by slot and position: the logical element it stands for
  std::vector<double> fits;            // by observation; negative when it says nothing
  std::uint64_t agreements = 0;
  std::uint64_t informative = 0;
  [[nodiscard]] double fit() const;
};

// Moves the values about; there must be some.
[[nodiscard]] double median(std::vector<double>& values);

// How many pairs (what ranks hold, what the reference has there) agree, no factor allowed.
[[nodiscard]] std::uint64_t agreements_of(const std::vector<std::pair<double, double>>& pairs);

class Ballot {
 public:
  Ballot(const std::vector<Observation>& observations, std::uint64_t seed);

  [[nodiscard]] Marks mark(const Hypothesis& hypothesis) const;
  // Whether the content speaks for `best` and against `other`, counted on those samples only for
  // which they name different elements.
  [[nodiscard]] bool beats(const Marks& best, const Marks& other) const;

  // By slot and position: the logical element that the hypothesis says it is.
  [[nodiscard]] std::vector<std::uint64_t> index_table(const Hypothesis& hypothesis) const;
  // The share of sampled elements that agree with the sum over the ranks that differ only along
  // `axes`, which the hypothesis of that index table does not cut over; not blind to a factor. 0
  // where no sample tells, or a rank of the sum is not in the observation.
  [[nodiscard]] double fit_of_sums(const std::vector<std::uint64_t>& indices,
                                   const std::vector<MeshAxis>& axes) const;

  [[nodiscard]] bool empty() const { return sample_count_ == 0; }
  // Whether the sampled values differ among themselves; constants fit every layout.
  [[nodiscard]] bool varied() const;

 private:
  // Shards that hold the same part of their tensors under any hypothesis: one index table serves.
  struct Slot {
    Coordinates where;
    Shape local;
    const Documents* documents = nullptr;
    std::vector<std::uint64_t> positions;
    std::size_t first = 0;  // in Marks::indices
  };
  struct Voice {  // one shard of one observation
    std::size_t slot = 0;
    std::vector<double> values;
  };
  struct Witness {  // one observation
    std::unique_ptr<ElementReader> reference;
    bool exact = false;  // integers agree only when equal
    std::vector<Voice> voices;
  };
  std::size_t slot_for(const Shard& shard, const Documents* documents, std::uint64_t seed);
  void mark_witness(const Witness& witness, Marks& marks) const;
  // Appends (sum, what the reference has there) of each sampled element of a complete sum.
  void add_sums(const Witness& witness, const std::vector<std::uint64_t>& indices,
                const std::vector<MeshAxis>& axes,
                std::vector<std::pair<double, double>>& sums) const;
  static void count_witness(const Witness& witness, Marks& marks);

  std::vector<Slot> slots_;
  std::vector<Witness> witnesses_;
  std::size_t sample_count_ = 0;
  std::size_t index_count_ = 0;
};

}  // namespace ttrace
