// SPDX-License-Identifier: Apache-2.0
// One class of calls against one way in which ranks may work together: what each call holds of each
// micro-batch, by sizes alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/routing.hpp"

namespace ttrace {

// A call as its ranks made it: `key` has the ranks' own number of the micro-batch.
struct JointCall {
  Key key;
  std::vector<Shard> shards;
};

// A dimension beside that of the rows that is cut, too: experts may be tensor parallel.
struct JointCut {
  std::size_t dim = 0;
  std::string axis;
};

struct JointPattern {
  std::map<std::int32_t, std::size_t> group_of;  // rank -> those that work together
  std::string axis;                              // the ranks along it take the columns; "" = one
  std::optional<JointCut> cut;
};

// By the reference's keys.
using JointParts = std::map<Key, std::vector<PlacedShard>>;

class JointSizes {
 public:
  JointSizes(const LogicalTensors& reference, const MicrobatchNumbers& numbers,
             const Routing& routing)
      : reference_(reference), numbers_(numbers), routing_(routing) {}

  // The reference's tensor of that name; of a second pass that of the first.
  [[nodiscard]] const LogicalTensor* reference_of(const Key& key) const;
  // Micro-batches of the ranks that work together with this one, in the order of ranks.
  [[nodiscard]] std::vector<std::int32_t> together(std::int32_t rank, std::int32_t own,
                                                   const JointPattern& pattern) const;
  // nullopt when the sizes are not those of the reference.
  [[nodiscard]] std::optional<JointParts> take_apart(const JointCall& call, std::size_t dim,
                                                     const JointPattern& pattern) const;

 private:
  struct Column {
    std::uint64_t first = 0;  // in the reference's tensor
    std::uint64_t rows = 0;
  };
  [[nodiscard]] std::optional<std::vector<Column>> columns_of(const Key& key, std::size_t dim,
                                                              const Shard& shard,
                                                              const JointPattern& pattern) const;
  [[nodiscard]] bool take_shard(const Key& key, const Shard& shard, std::size_t dim,
                                const JointPattern& pattern, JointParts& parts) const;

  const LogicalTensors& reference_;
  const MicrobatchNumbers& numbers_;
  const Routing& routing_;
};

// The mesh axes of several ranks, with their sizes.
using MeshAxes = std::vector<std::pair<std::string, std::uint64_t>>;
[[nodiscard]] MeshAxes mesh_axes(const std::map<std::int32_t, Coordinates>& places);

// The same, and their parts ("dp/outer2": neighbourhoods of data parallel
// ranks may share experts, and no axis of its own tells them apart).
[[nodiscard]] std::vector<std::string> joint_axes(
    const std::map<std::int32_t, Coordinates>& places);

// The ways to divide the ranks into groups by their places on these axes, the smallest groups
// first.
[[nodiscard]] std::vector<JointPattern> joint_patterns(
    const std::map<std::int32_t, Coordinates>& places);

}  // namespace ttrace
