// SPDX-License-Identifier: Apache-2.0
// See pipeline_stages.hpp.
#include "invariant/builtin/pipeline_stages.hpp"

#include <algorithm>
#include <set>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {
namespace {

using Contents = std::map<Hash128, std::set<std::int32_t>>;  // the ranks that have them

// `slot`: "input" or "output".
Contents at_the_root(const Evidence& evidence, const std::string& slot) {
  Contents contents;
  for (const auto& [rank, where] : evidence.places()) {
    const SegmentReader* segment = evidence.trace().segment(rank, evidence.iterations().front());
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      const Key& key = record.key;
      const bool wanted =
          key.phase == Phase::forward && key.module == kRootModule && key.slot.rfind(slot, 0) == 0;
      if (wanted && tells(&record)) contents[record.hash].insert(rank);
    }
  }
  return contents;
}

}  // namespace

PipelineStages::PipelineStages(const Evidence& evidence) {
  const Contents inputs = at_the_root(evidence, "input");
  std::set<std::pair<std::int32_t, std::int32_t>> handed_on;
  for (const auto& [hash, makers] : at_the_root(evidence, "output")) {
    const auto takers = inputs.find(hash);
    if (takers == inputs.end()) continue;
    for (const std::int32_t maker : makers) {
      if (takers->second.count(maker) != 0) continue;  // it hands on what it was given
      for (const std::int32_t taker : takers->second) handed_on.emplace(maker, taker);
    }
  }
  // The longest way from a rank that is given data.
  for (const auto& [maker, taker] : handed_on) stage_[maker] = stage_[taker] = 0;
  for (std::size_t round = 0; round <= stage_.size(); ++round) {
    bool settled = true;
    for (const auto& [maker, taker] : handed_on) {
      const std::size_t behind = stage_[maker] + 1;
      settled = settled && stage_[taker] >= behind;
      stage_[taker] = std::max(stage_[taker], behind);
    }
    if (settled) return;
  }
  stage_.clear();  // a ring: ranks have several stages each
}

bool PipelineStages::apart(std::int32_t one, std::int32_t other) const {
  const auto left = stage_.find(one);
  const auto right = stage_.find(other);
  return left != stage_.end() && right != stage_.end() && left->second != right->second;
}

}  // namespace ttrace::builtin
