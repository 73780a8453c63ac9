// SPDX-License-Identifier: Apache-2.0
// See gradient_flow.hpp.
#include "invariant/builtin/collective/gradient_flow.hpp"

#include <algorithm>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/collective/scale.hpp"
#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::size_t kEnough = 3;  // gradients of one factor, and three times as many as others

std::multimap<std::uint64_t, const Record*> gradients_by_size(const SegmentReader& segment) {
  std::multimap<std::uint64_t, const Record*> gradients;
  for (const Record& record : segment.records()) {
    const Key& key = record.key;
    if (key.phase != Phase::grad || key.slot != "reduced" || !tells(&record)) continue;
    gradients.emplace(element_count(record.shape), &record);
  }
  return gradients;
}

std::vector<Became> flow_in(const Evidence& evidence, std::int32_t rank, std::int64_t iteration) {
  std::vector<Became> flow;
  const SegmentReader* segment = evidence.trace().segment(rank, iteration);
  if (segment == nullptr) return flow;
  const auto gradients = gradients_by_size(*segment);
  for (const Call& call : evidence.collectives().calls(rank, iteration)) {
    const Record* output = call.output();
    const bool failed = (call.row->flags & kCollectiveFailed) != 0;
    if (call.row->size < 2 || !sums(*call.row) || failed || !tells(output)) continue;
    const auto [first, last] = gradients.equal_range(element_count(output->shape));
    for (auto gradient = first; gradient != last; ++gradient) {
      if (gradient->second->sequence < output->sequence) continue;
      const auto factor = scale_between(*segment, *output, *segment, *gradient->second);
      if (factor) flow.push_back({call.row, gradient->second, *factor});
    }
  }
  return flow;
}

}  // namespace

const std::vector<Became>& GradientFlow::of(const Evidence& evidence, std::int32_t rank,
                                            std::int64_t iteration) {
  std::erase_if(known_, [&](const auto& entry) { return entry.first.first < iteration - 1; });
  const auto found = known_.find({iteration, rank});
  if (found != known_.end()) return found->second;
  return known_.emplace(std::pair(iteration, rank), flow_in(evidence, rank, iteration))
      .first->second;
}

std::optional<double> usual_weight(const std::vector<Became>& flow,
                                   const std::set<const Collective*>& without) {
  std::map<const Record*, double> last;  // of several sums in a row the last one counts
  for (const Became& became : flow) {
    if (without.count(became.row) != 0) continue;
    last[became.gradient] = became.factor * weight_of(*became.row);
  }
  for (const auto& [gradient, weight] : last) {
    const auto alike = static_cast<std::size_t>(std::count_if(
        last.begin(), last.end(),
        [weight = weight](const auto& other) { return same_scale(other.second, weight); }));
    if (alike >= kEnough && (last.size() - alike) * 3 <= alike) return weight;
  }
  return std::nullopt;
}

}  // namespace ttrace::builtin
