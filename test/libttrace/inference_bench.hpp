// SPDX-License-Identifier: Apache-2.0
// A reference of whole tensors and a candidate of shards, both real traces, for tests of inference.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/logical.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace::testing {

using Cutter = std::function<Tensor(const Tensor&, const Coordinates&)>;

inline std::uint64_t at(const Coordinates& where, const std::string& axis) {
  return where.at(axis).coord;
}

inline Tensor whole(const Tensor& tensor, const Coordinates&) { return tensor; }

inline Cutter cut(std::size_t dim, const std::string& axis) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    return part(tensor, dim, where.at(axis).coord, where.at(axis).size);
  };
}

class Bench {
 public:
  explicit Bench(const std::vector<std::pair<std::string, std::uint64_t>>& axes)
      : reference_("reference"), candidate_("candidate") {
    reference_.place(0, {});
    candidate_.mesh(axes);
  }
  TraceBuilder& candidate() { return candidate_; }

  // Whole in the reference; on each rank, after rounding noise, what the cutter leaves of it.
  void add(const std::string& key, const Tensor& tensor, const Cutter& cutter,
           const std::string& layout = "", RecordKind kind = RecordKind::full) {
    const bool parameter = key_of(key).phase == Phase::param;
    add_reference(key, tensor, kind);
    add_shards(key, parameter ? tensor : noisy(tensor, 1e-6, ++seed_), cutter, layout, kind);
  }
  // An input of the model of whole numbers, which needs no rounding.
  void add_input(const std::string& key, const Tensor& tensor, const Cutter& cutter) {
    const Field field{key_of(key), DType::int64, RecordKind::full, "", kFlagRootInput};
    reference_.add(0, field, tensor);
    add_input_shards(key, tensor, cutter);
  }
  void add_input_shards(const std::string& key, const Tensor& tensor, const Cutter& cutter) {
    const Field field{key_of(key), DType::int64, RecordKind::full, "", kFlagRootInput};
    for (const auto& [rank, where] : candidate_.places()) {
      candidate_.add(rank, field, cutter(tensor, where));
    }
  }
  void add_reference(const std::string& key, const Tensor& tensor,
                     RecordKind kind = RecordKind::full) {
    Field field{key_of(key), DType::float32, kind, "", 0};
    reference_.add(0, field, tensor);
  }
  void add_shards(const std::string& key, const Tensor& tensor, const Cutter& cutter,
                  const std::string& layout = "", RecordKind kind = RecordKind::full) {
    for (const auto& [rank, where] : candidate_.places()) {
      add_shard(rank, key, cutter(tensor, where), layout, kind);
    }
  }
  void add_shard(std::int32_t rank, const std::string& key, const Tensor& shard,
                 const std::string& layout = "", RecordKind kind = RecordKind::full) {
    candidate_.add(rank, {key_of(key), DType::float32, kind, layout, 0}, shard);
  }

  void infer(const std::vector<LayoutRule>& rules = {}) {
    reference_trace_.emplace(reference_.write());
    candidate_trace_.emplace(candidate_.write());
    const Trace& reference = *reference_trace_;
    const Trace& candidate = *candidate_trace_;
    for (const std::int64_t iteration : candidate.iterations()) {
      // Micro-batch numbers are kept: every rank works on the same samples here.
      const auto numbers = [iteration](const Trace& trace) {
        MicrobatchNumbers found;
        for (const RankInfo& rank : trace.ranks()) {
          for (std::int32_t i = 0; i < 8; ++i) found[{rank.rank, i}] = i;
        }
        return group_shards(trace, iteration, found);
      };
      groups.merge(numbers(candidate));
      for (const auto& [key, shards] : numbers(reference)) {
        LayoutDecision identity;
        identity.global_shape = shards.front().record->shape;
        identity.layout.dims.resize(identity.global_shape.size());
        tensors.emplace(key, place_shards(key, shards, identity));
      }
    }
    inference = infer_layouts(tensors, groups, rules);
  }

  const LayoutDecision& decision(const std::string& key) {
    if (!reference_trace_) infer();
    return inference.decisions.at(key_of(key));
  }
  // The layout as text, "unknown" when there is none.
  std::string layout(const std::string& key) {
    const LayoutDecision& decided = decision(key);
    return decided.known ? to_string(decided.layout) : "unknown";
  }
  std::size_t count(FindingKind kind) const {
    std::size_t found = 0;
    for (const Finding& finding : inference.findings) found += finding.kind == kind ? 1 : 0;
    return found;
  }
  LogicalTensor placed(const std::string& key) {
    return place_shards(key_of(key), groups.at(key_of(key)), decision(key));
  }

  ShardGroups groups;
  LogicalTensors tensors;
  Inference inference;

 private:
  TraceBuilder reference_;
  TraceBuilder candidate_;
  std::optional<Trace> reference_trace_;
  std::optional<Trace> candidate_trace_;
  unsigned seed_ = 1000;
};

}  // namespace ttrace::testing
