// SPDX-License-Identifier: Apache-2.0
// Sorts keys into classes, and reads what the program or a rule file declared about them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libttrace/inference_vote.hpp"

namespace ttrace {

[[nodiscard]] bool is_number(std::string_view text);  // digits, at least one
// Numeric components become stars: layers.3.mlp.linear_fc1 is layers.*.mlp.linear_fc1. Digits
// inside a component stay, fc1 and fc2 are two classes.
[[nodiscard]] std::string starred(std::string_view module);

// What the records of one key declare.
struct Declaration {
  std::optional<Layout> layout;  // of the first shard that declares one; rules come before records
  bool flat = false;             // pieces of flattened shards: layouts that are only ever declared
  std::string conflict;          // not empty: the ranks declare different layouts
};

// A tensor that a part of the mesh shares, say tensor parallel ranks, may be cut over the rest, say
// the batch over data parallel ranks. Adds those cuts where the reference's shape leaves no choice;
// otherwise forgets a declaration that content can do without.
void complete(Declaration& declaration, const Shape& reference, const Coordinates& where);

class Declarations {
 public:
  explicit Declarations(const std::vector<LayoutRule>& rules) : rules_(rules) {}
  [[nodiscard]] Declaration of(const Key& key, const std::vector<Shard>& shards);
  // The record's own; nullptr when it declares nothing.
  [[nodiscard]] const Layout* of(const Shard& shard);
  // The shape of the shard, before it was flattened.
  [[nodiscard]] Shape local_shape(const Shard& shard);

 private:
  const std::vector<LayoutRule>& rules_;
  std::map<std::pair<const SegmentReader*, std::int32_t>, Layout> parsed_;
};

class ClassTable {
 public:
  ClassTable(Declarations& declarations, const ShardGroups& candidate);

  // Adds the tensor to its class, which it starts if there is none yet. `documents` are those of
  // its micro-batch, nullptr where nothing is packed.
  void add(const Key& key, const std::vector<Shard>& shards, const LogicalTensor& reference,
           const Declaration& declaration, const Documents* documents);
  [[nodiscard]] std::vector<ClassOfTensors> take();
  // Whether any axis of the mesh has more than one rank.
  [[nodiscard]] bool parallel() const { return parallel_; }

 private:
  const RankMesh& mesh_for(const std::vector<Shard>& shards);

  Declarations& declarations_;
  std::vector<MeshAxis> incomplete_;  // axes of which the trace lacks ranks
  bool parallel_ = false;
  std::map<std::vector<std::int32_t>, RankMesh> meshes_;  // by ranks
  std::map<std::string, std::size_t> by_name_;
  std::vector<ClassOfTensors> classes_;
};

}  // namespace ttrace
