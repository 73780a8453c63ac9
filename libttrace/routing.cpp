// SPDX-License-Identifier: Apache-2.0
// See routing.hpp.
#include "libttrace/routing.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 26;  // of one choice

bool is_choice(const Key& key, const LogicalTensor& tensor) {
  return key.phase == Phase::forward && tensor.dtype == DType::boolean && tensor.proved() &&
         tensor.shape.size() >= 2 && element_count(tensor.shape) > 0 &&
         element_count(tensor.shape) <= kMostElements &&
         std::all_of(tensor.shards.begin(), tensor.shards.end(), [](const PlacedShard& placed) {
           return placed.copy || placed.shard.record->kind == RecordKind::full;
         });
}

std::vector<std::byte> all_of(const LogicalTensor& tensor) {
  std::vector<std::byte> bytes(element_count(tensor.shape));
  read_box(tensor, {Shape(tensor.shape.size(), 0), tensor.shape}, bytes.data());
  return bytes;
}

}  // namespace

Key forward_of(Key key) {
  key.phase = Phase::forward;
  if (key.slot.rfind("grad_", 0) == 0) key.slot.erase(0, 5);
  return key;
}

Routing::Routing(const LogicalTensors& reference, const ShardGroups& candidate,
                 const std::vector<LayoutRule>& rules)
    : reference_(reference) {
  for (const auto& [key, tensor] : reference) {
    if (is_choice(key, tensor)) read(tensor);
  }
  if (!choices_.empty()) compare(candidate, rules);
}

void Routing::read(const LogicalTensor& tensor) {
  const std::uint64_t columns = tensor.shape.back();
  Placed placed;
  placed.rank = tensor.shards.front().shard.rank;
  placed.sequence = tensor.shards.front().shard.record->sequence;
  RoutingChoice& choice = placed.choice;
  choice.key = tensor.key;
  choice.counts.assign(columns, 0);
  choice.rows = element_count(tensor.shape) / columns;
  const std::vector<std::byte> marks = all_of(tensor);
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] == std::byte{0}) continue;
    ++choice.counts[i % columns];
    ++choice.total;
  }
  choices_[tensor.key.microbatch].push_back(std::move(placed));
}

void Routing::compare(const ShardGroups& candidate, const std::vector<LayoutRule>& rules) {
  ShardGroups held;
  for (const auto& [microbatch, placed] : choices_) {
    for (const Placed& entry : placed) {
      const auto found = candidate.find(entry.choice.key);
      if (found != candidate.end()) held.insert(*found);
    }
  }
  const Inference inference = infer_layouts(reference_, held, rules);
  const LogicalTensors theirs = place_all(held, inference.decisions);
  for (auto& [microbatch, placed] : choices_) {
    for (Placed& entry : placed) {
      RoutingChoice& choice = entry.choice;
      const auto other = theirs.find(choice.key);
      const LogicalTensor& own = reference_.at(choice.key);
      if (other == theirs.end() || !is_choice(choice.key, other->second)) continue;
      if (other->second.shape != own.shape) continue;
      const std::vector<std::byte> left = all_of(own);
      const std::vector<std::byte> right = all_of(other->second);
      const std::size_t columns = choice.counts.size();
      for (std::uint64_t row = 0; row < choice.rows; ++row) {
        const auto begin = left.begin() + static_cast<std::ptrdiff_t>(row * columns);
        const auto end = begin + static_cast<std::ptrdiff_t>(columns);
        const auto with = right.begin() + static_cast<std::ptrdiff_t>(row * columns);
        if (!std::equal(begin, end, with)) ++choice.differing;
      }
    }
  }
}

const RoutingChoice* Routing::before(const Key& key, std::uint64_t rows) const {
  const auto choices = choices_.find(key.microbatch);
  const auto tensor = reference_.find(forward_of(key));
  if (choices == choices_.end() || tensor == reference_.end()) return nullptr;
  const Placed* last = nullptr;
  for (const PlacedShard& shard : tensor->second.shards) {
    for (const Placed& placed : choices->second) {
      const std::vector<std::uint64_t>& counts = placed.choice.counts;
      const bool earlier = placed.rank == shard.shard.rank &&
                           placed.sequence < shard.shard.record->sequence &&
                           (last == nullptr || placed.sequence > last->sequence);
      const bool fits = placed.choice.total == rows ||
                        std::find(counts.begin(), counts.end(), rows) != counts.end();
      if (earlier && fits) last = &placed;
    }
    if (last != nullptr) break;
  }
  return last == nullptr ? nullptr : &last->choice;
}

const RoutingChoice* Routing::first_differing() const {
  const RoutingChoice* first = nullptr;
  for (const auto& [microbatch, choices] : choices_) {
    std::uint64_t sequence = 0;
    for (const Placed& placed : choices) {
      if (placed.choice.differing == 0) continue;
      const bool sooner =
          first == nullptr || (first->key.microbatch == microbatch && placed.sequence < sequence);
      if (!sooner) continue;
      first = &placed.choice;
      sequence = placed.sequence;
    }
  }
  return first;
}

}  // namespace ttrace
