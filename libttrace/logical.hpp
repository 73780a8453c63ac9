// SPDX-License-Identifier: Apache-2.0
// From shards to logical tensors. Three steps, each a value that the next one reads:
//   group   all records of one key, whichever ranks hold them          (grouping.cpp)
//   place   a layout for each key turns shards into boxes              (inference.cpp decides it)
//   prove   every element exactly once, copies bit-equal               (placement.cpp)
// Nothing is copied: a LogicalTensor points into mapped segments.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/finding.hpp"
#include "libttrace/layout.hpp"
#include "libttrace/trace.hpp"

namespace ttrace {

struct LogicalTensor;
class ModuleNames;

// A rank's coordinates, which all of its shards share: there are few ranks and many shards.
class SharedCoordinates {
 public:
  SharedCoordinates() : SharedCoordinates(Coordinates{}) {}
  SharedCoordinates(Coordinates where)
      : where_(std::make_shared<const Coordinates>(std::move(where))) {}
  operator const Coordinates&() const { return *where_; }
  [[nodiscard]] const Coordinates& get() const { return *where_; }
  [[nodiscard]] Coordinates::const_iterator begin() const { return where_->begin(); }
  [[nodiscard]] Coordinates::const_iterator end() const { return where_->end(); }

 private:
  std::shared_ptr<const Coordinates> where_;
};

struct Shard {
  std::int32_t rank = 0;
  SharedCoordinates where;
  const SegmentReader* segment = nullptr;
  const Record* record = nullptr;
  const ModuleNames* names = nullptr;  // set where this rank numbers its layers by itself
};

// Keys carry logical micro-batch numbers: equal numbers on both sides mean the same samples.
using ShardGroups = std::map<Key, std::vector<Shard>>;

// (rank, its own micro-batch number) -> logical number.
struct MicrobatchNumbers : std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> {
  using map::map;
  // Where a rank takes several turns for what the other run computes in one: which part of it. Its
  // shards stand on an axis of that name, as if other ranks had computed them.
  std::map<std::pair<std::int32_t, std::int32_t>, AxisPosition> parts;
};
inline constexpr const char* kTurnAxis = "turn";

struct MicrobatchMatch {
  MicrobatchNumbers reference;
  MicrobatchNumbers candidate;
  bool by_content = true;  // false: no integer root inputs, matched by position
  std::vector<Finding> findings;
};

// Micro-batches are the same when the integer inputs of the root module are (compared by hash, on
// the slots both ranks have). A rank without such inputs (an inner pipeline stage) follows the
// ranks that differ from it only along pipeline-like axes, where its numbers run in parallel. Equal
// contents match in order. What matches nothing is a finding, and keeps a number of its own.
[[nodiscard]] MicrobatchMatch match_microbatches(const Trace& reference, const Trace& candidate,
                                                 std::int64_t reference_iteration,
                                                 std::int64_t candidate_iteration);
// The numbering of one trace alone: equal inputs on several ranks are one micro-batch.
[[nodiscard]] MicrobatchNumbers number_microbatches(const Trace& trace, std::int64_t iteration);

// All records of the iteration, aliases included (phase recompute too). Records of micro-batches
// that have no number are left out.
[[nodiscard]] ShardGroups group_shards(const Trace& trace, std::int64_t iteration,
                                       const MicrobatchNumbers& numbers);

// Phase param alone: values before the first forward pass, and masters.
[[nodiscard]] ShardGroups group_parameters(const Trace& trace, std::int64_t iteration);

// The first iteration that both have; there the two runs start alike.
[[nodiscard]] std::optional<std::int64_t> first_common_iteration(const Trace& reference,
                                                                 const Trace& candidate);

// A program that declares a layout speaks of its mesh, not of turns that make up one micro-batch of
// another run: says so in the layout's axes.
void leave_turns_open(const std::vector<Shard>& shards, Layout& layout);

// ---- layouts ----

struct LayoutDecision {
  Layout layout;
  Shape global_shape;
  bool known = true;     // false: nothing explains the shards; `reason` says what was tried
  bool assumed = false;  // a tie that content could not decide
  bool parts = false;   // of calls for several micro-batches: the shards hold more than this tensor
  bool padded = false;  // larger than the reference's shape: filled up at the end of a dimension
  double fit = 1;       // share of sampled elements that agree with the reference
  std::string reason;   // "only layout of that shape", "content", "link to its parameter", ...
};
using LayoutDecisions = std::map<Key, LayoutDecision>;

// dims strings of a --layout FILE: first match wins. Lines: GLOB-of-key  DIMS  [SHAPE], or GLOB  ?
struct LayoutRule {
  std::string pattern;
  Layout layout;
  bool undeclared = false;  // "?": what the program declares is not looked at, pieces aside
  std::string where{};      // "rules.txt, line 3"
};
[[nodiscard]] std::vector<LayoutRule> read_layout_rules(const std::string& path);
[[nodiscard]] const LayoutRule* find_rule(const std::vector<LayoutRule>& rules, const Key& key);
// Rules that say nothing about these traces: their names match no tensor, or they speak of an axis
// that no rank has. One line each.
[[nodiscard]] std::vector<std::string> idle_rules(const std::vector<LayoutRule>& rules,
                                                  const std::vector<const Trace*>& traces);

// What the program or a rule declared; nothing else. For merging without a reference.
[[nodiscard]] LayoutDecisions declared_layouts(const ShardGroups& groups,
                                               const std::vector<LayoutRule>& rules);

struct Inference {
  LayoutDecisions decisions;      // one for each key of `candidate`
  std::vector<Finding> findings;  // layout_contradicted, layout_unknown
};
// Decides the layout of every candidate tensor from shapes, mesh and content, class by class, with
// the reference's logical tensors as the truth of content.
[[nodiscard]] Inference infer_layouts(const std::map<Key, LogicalTensor>& reference,
                                      const ShardGroups& candidate,
                                      const std::vector<LayoutRule>& rules);

// ---- placement ----

// The pieces of a shard; shards that are cut alike share them (piece_pool.hpp).
class SharedPieces {
 public:
  SharedPieces() = default;
  SharedPieces(std::vector<Piece> pieces)
      : pieces_(std::make_shared<const std::vector<Piece>>(std::move(pieces))) {}
  operator const std::vector<Piece>&() const { return get(); }
  [[nodiscard]] const std::vector<Piece>& get() const {
    static const std::vector<Piece> kNone;
    return pieces_ ? *pieces_ : kNone;
  }
  [[nodiscard]] std::vector<Piece>::const_iterator begin() const { return get().begin(); }
  [[nodiscard]] std::vector<Piece>::const_iterator end() const { return get().end(); }
  [[nodiscard]] std::size_t size() const { return get().size(); }
  [[nodiscard]] bool empty() const { return get().empty(); }
  [[nodiscard]] const Piece& front() const { return get().front(); }
  [[nodiscard]] const Piece& operator[](std::size_t at) const { return get()[at]; }
  friend bool operator==(const SharedPieces& left, const SharedPieces& right) {
    return left.pieces_ == right.pieces_ || left.get() == right.get();
  }

 private:
  std::shared_ptr<const std::vector<Piece>> pieces_;
};

struct PlacedShard {
  Shard shard;
  SharedPieces pieces;
  bool copy = false;  // holds exactly the elements of an earlier shard (a replica)
};

struct LogicalTensor {
  Key key;
  DType dtype = DType::float32;
  Shape shape;
  Layout layout;
  std::vector<PlacedShard> shards;
  std::vector<Finding>
      problems;  // holes, overlaps, replica conflicts: the failed parts of the proof
  [[nodiscard]] bool proved() const { return problems.empty(); }
  // One shard that is the whole tensor in its own order: a single-rank trace, a merged trace.
  [[nodiscard]] bool whole() const;
};
using LogicalTensors = std::map<Key, LogicalTensor>;

[[nodiscard]] LogicalTensor place_shards(const Key& key, const std::vector<Shard>& shards,
                                         const LayoutDecision& decision);
[[nodiscard]] LogicalTensors place_all(const ShardGroups& groups, const LayoutDecisions& decisions);

// The candidate against a reference, in all: calls for several micro-batches are taken apart
// (joint_calls.hpp), the other layouts inferred, and everything placed.
struct Assembled {
  LogicalTensors tensors;
  LayoutDecisions decisions;
  std::vector<Finding> findings;
};
// `numbers` are those of the candidate, whose keys become the reference's where calls were joint.
[[nodiscard]] Assembled assemble(const LogicalTensors& reference, const MicrobatchNumbers& numbers,
                                 const std::vector<LayoutRule>& rules, ShardGroups& candidate);

// Copies `box` of the logical tensor into `out` (packed, row-major). Only for proved tensors; takes
// each element from its first non-copy shard and releases pages as it goes.
void read_box(const LogicalTensor& tensor, const Box& box, std::byte* out);

}  // namespace ttrace
