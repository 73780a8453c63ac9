// SPDX-License-Identifier: Apache-2.0
// See losses.hpp.
#include "diff/losses.hpp"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "diff/sums.hpp"
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

// One number of a forward pass, held by ranks for their own parts of the data.
struct Parts {
  double sum = 0;
  double mean = 0;
  std::string axes;
};

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::optional<Parts> parts_of(const Key& key, const LogicalTensor& tensor, const Side& side) {
  const std::set<std::string> axes = cutting_axes(key, side);
  if (axes.empty()) return std::nullopt;
  std::map<std::vector<std::uint64_t>, double> values;  // by coordinates on the cutting axes
  for (const PlacedShard& placed : tensor.shards) {
    std::vector<std::uint64_t> at;
    for (const std::string& axis : axes) at.push_back(position_on(placed.shard.where, axis).coord);
    const std::optional<double> value = value_of(placed.shard);
    if (!value) return std::nullopt;
    const auto [known, added] = values.emplace(std::move(at), *value);
    if (!added && known->second != *value) return std::nullopt;
  }
  Parts parts;
  for (const auto& [at, value] : values) parts.sum += value;
  parts.mean = parts.sum / static_cast<double>(values.size());
  parts.axes = joined(axes);
  return parts;
}

}  // namespace

std::optional<CombinedLoss> combine_loss(const Pair& pair, const Side& reference,
                                         const Side& candidate) {
  const bool output = pair.key.phase == Phase::forward && !is_input(pair.key);
  if (!output || element_count(pair.reference->shape) != 1) return std::nullopt;
  if (!is_floating(pair.reference->dtype) || !is_floating(pair.candidate->dtype)) {
    return std::nullopt;
  }
  const bool ours = has_problem(*pair.candidate, FindingKind::replica_conflict);
  const LogicalTensor& whole = ours ? *pair.reference : *pair.candidate;
  const LogicalTensor& cut = ours ? *pair.candidate : *pair.reference;
  if (!readable(whole) || has_problem(whole, FindingKind::replica_conflict)) return std::nullopt;
  const std::optional<Parts> parts = parts_of(pair.key, cut, ours ? candidate : reference);
  if (!parts) return std::nullopt;
  std::vector<double> truth;
  read_doubles(whole, {Shape(whole.shape.size(), 0), whole.shape}, truth);
  const bool is_mean = std::fabs(parts->mean - truth.at(0)) <= std::fabs(parts->sum - truth.at(0));
  const double combined = is_mean ? parts->mean : parts->sum;
  return CombinedLoss{ours ? truth[0] : combined, ours ? combined : truth[0],
                      (is_mean ? "mean over " : "sum over ") + parts->axes};
}

}  // namespace ttrace
