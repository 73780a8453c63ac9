// SPDX-License-Identifier: Apache-2.0
// See losses.hpp.
#include "diff/losses.hpp"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "diff/tiles.hpp"

namespace ttrace {
namespace {

// Mesh axes over which the root module's inputs of this micro-batch are cut.
std::set<std::string> cutting_axes(const Key& key, const Side& side) {
  Key first = key;
  first.phase = Phase::forward;
  first.module = kRootModule;
  first.call = 0;
  first.slot.clear();
  std::set<std::string> axes;
  for (auto at = side.tensors.lower_bound(first);
       at != side.tensors.end() && at->first.module == kRootModule; ++at) {
    if (at->first.microbatch != key.microbatch) break;
    if (!is_input(at->first)) continue;
    for (const auto& cuts : at->second.layout.dims) {
      for (const Cut& cut : cuts) axes.insert(cut.axis);
    }
  }
  return axes;
}

std::optional<double> value_of(const Shard& shard) {
  const Record& record = *shard.record;
  if (element_count(record.shape) != 1 || record.kind != RecordKind::full) return std::nullopt;
  return decode(record.dtype, shard.segment->bytes(record).data(), 0);
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::optional<CombinedLoss> combine_loss(const Pair& pair, const Side& candidate) {
  const bool output = pair.key.phase == Phase::forward && !is_input(pair.key);
  if (!output || element_count(pair.reference->shape) != 1) return std::nullopt;
  if (!is_floating(pair.reference->dtype) || !readable(*pair.reference)) return std::nullopt;
  const std::set<std::string> axes = cutting_axes(pair.key, candidate);
  if (axes.empty()) return std::nullopt;

  std::map<std::vector<std::uint64_t>, double> parts;  // by coordinates on the cutting axes
  for (const PlacedShard& placed : pair.candidate->shards) {
    std::vector<std::uint64_t> at;
    for (const std::string& axis : axes) at.push_back(position_on(placed.shard.where, axis).coord);
    const std::optional<double> value = value_of(placed.shard);
    if (!value) return std::nullopt;
    const auto [known, added] = parts.emplace(std::move(at), *value);
    if (!added && known->second != *value) return std::nullopt;
  }
  double sum = 0;
  for (const auto& [at, value] : parts) sum += value;
  const double mean = sum / static_cast<double>(parts.size());

  std::vector<double> truth;
  read_doubles(*pair.reference, {Shape(pair.reference->shape.size(), 0), pair.reference->shape},
               truth);
  const bool is_mean = std::fabs(mean - truth.at(0)) <= std::fabs(sum - truth.at(0));
  return CombinedLoss{truth[0], is_mean ? mean : sum,
                      (is_mean ? "mean over " : "sum over ") + joined(axes)};
}

}  // namespace ttrace
