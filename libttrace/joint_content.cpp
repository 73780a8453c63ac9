// SPDX-License-Identifier: Apache-2.0
// See joint_content.hpp.
#include "libttrace/joint_content.hpp"

#include <algorithm>
#include <cmath>

#include "libttrace/inference_score.hpp"
#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

constexpr double kAgrees = 0.9;  // of sampled elements
constexpr std::size_t kLooked = 8;
constexpr std::size_t kMostAddedAxes = 4;

using Pairs = std::vector<std::pair<double, double>>;  // held, expected

// One tensor for each addend.
std::vector<LogicalTensor> addends_of(const LogicalTensor& tensor) {
  std::map<std::vector<std::uint64_t>, LogicalTensor> addends;
  for (const PlacedShard& placed : tensor.shards) {
    LogicalTensor& addend = addends[place_id(placed, tensor.layout).addend];
    addend.shape = tensor.shape;
    addend.layout = tensor.layout;
    addend.layout.partial.clear();
    addend.shards.push_back(placed);
  }
  std::vector<LogicalTensor> found;
  for (auto& [where, addend] : addends) found.push_back(std::move(addend));
  return found;
}

double largest(const Pairs& pairs, double (*of)(const std::pair<double, double>&)) {
  double most = 0;
  for (const auto& pair : pairs) most = std::max(most, of(pair));
  return most;
}

// The median of held / expected where the reference is not small.
double common_factor(const Pairs& pairs) {
  const double least = largest(pairs, [](const auto& pair) { return std::abs(pair.second); }) / 8;
  std::vector<double> ratios;
  for (const auto& [held, expected] : pairs) {
    if (std::abs(expected) > least) ratios.push_back(held / expected);
  }
  return ratios.empty() ? 1 : median(ratios);
}

// The share of sampled elements in which `tensor`, whose shards are placed, agrees with the
// reference; what no shard holds does not. Addends are added; gradients may all be one factor off.
double agreement_with(const LogicalTensor& reference, const LogicalTensor& tensor) {
  const ElementReader truth(reference);
  const std::vector<LogicalTensor> addends = addends_of(tensor);
  std::vector<ElementReader> readers(addends.begin(), addends.end());
  Pairs pairs;
  std::size_t asked = 0;
  const std::uint64_t seed = seed_of(tensor.key.module);
  for (const std::uint64_t index : sample_positions(element_count(reference.shape), seed)) {
    const std::optional<double> expected = truth.at(index);
    if (!expected) continue;
    ++asked;
    double held = 0;
    bool complete = true;
    for (const ElementReader& reader : readers) {
      const std::optional<double> value = reader.at(index);
      complete = complete && value;
      held += value.value_or(0);
    }
    if (complete) pairs.emplace_back(held, *expected);
  }
  for (const ElementReader& reader : readers) reader.release();
  truth.release();
  if (pairs.empty()) return 0;
  if (tensor.key.phase == Phase::backward) {
    const double factor = common_factor(pairs);
    for (auto& [held, expected] : pairs) expected *= factor;
  }
  return static_cast<double>(agreements_of(pairs)) / static_cast<double>(asked);
}

// The median of the first few tensors that have elements: a single one may be wrong.
double agreement_of(const JointSizes& sizes, const JointParts& parts, const Layout& layout) {
  std::vector<double> shares;
  for (const auto& [key, shards] : parts) {
    const LogicalTensor& reference = *sizes.reference_of(key);
    if (element_count(reference.shape) == 0) continue;
    shares.push_back(
        agreement_with(reference, {key, reference.dtype, reference.shape, layout, shards, {}}));
    if (shares.size() == kLooked) break;
  }
  return shares.empty() ? 0 : median(shares);
}

}  // namespace

std::optional<JointDims> joint_dims(
    const std::vector<std::pair<const Shard*, const LogicalTensor*>>& shards) {
  std::map<std::size_t, std::uint64_t> unlike;  // dimension -> its shares, 0 when they vary
  for (const auto& [shard, reference] : shards) {
    const Shape& local = shard->record->shape;
    if (local.size() != reference->shape.size()) return std::nullopt;
    for (std::size_t dim = 0; dim < local.size(); ++dim) {
      if (local[dim] != reference->shape[dim]) unlike.emplace(dim, 0);
    }
  }
  for (auto& [dim, shares] : unlike) {
    for (const auto& [shard, reference] : shards) {
      const std::uint64_t local = shard->record->shape[dim];
      const std::uint64_t extent = reference->shape[dim];
      const std::uint64_t own = local != 0 && extent % local == 0 ? extent / local : 0;
      shares = shard == shards.front().first || shares == own ? own : 0;
      if (shares == 0) break;
    }
  }
  if (unlike.empty() || unlike.size() > 2) return std::nullopt;
  JointDims dims{unlike.begin()->first, {}, 1};
  if (unlike.size() == 1) return dims;
  // Rows mostly come first; where both have one share everywhere, the last is what is cut.
  const auto cut = unlike.rbegin()->second > 1 ? std::prev(unlike.end()) : unlike.begin();
  if (cut->second <= 1) return std::nullopt;
  dims.rows = cut == unlike.begin() ? unlike.rbegin()->first : unlike.begin()->first;
  dims.cut = cut->first;
  dims.shares = cut->second;
  return dims;
}

double find_addends(const JointSizes& sizes, const JointParts& parts, const MeshAxes& axes,
                    Layout& layout) {
  layout.partial.clear();
  const double plain = agreement_of(sizes, parts, layout);
  if (plain >= kAgrees) return plain;
  const std::uint64_t choices = std::uint64_t{1} << std::min(axes.size(), kMostAddedAxes);
  for (std::uint64_t choice = 1; choice < choices; ++choice) {
    layout.partial.clear();
    for (std::size_t i = 0; choice >> i != 0; ++i) {
      if ((choice >> i & 1) != 0) layout.partial.push_back(axes[i].first);
    }
    const bool cut = std::any_of(layout.partial.begin(), layout.partial.end(),
                                 [&](const std::string& axis) { return cuts_over(layout, axis); });
    const double added = cut ? 0 : agreement_of(sizes, parts, layout);
    if (added >= kAgrees) return added;
  }
  layout.partial.clear();
  return plain;
}

}  // namespace ttrace
