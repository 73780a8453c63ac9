// SPDX-License-Identifier: Apache-2.0
// A pair in the light of noise. See judging.hpp, noise.hpp, statistics.hpp.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "diff/double_reader.hpp"
#include "diff/in_parallel.hpp"
#include "diff/judging.hpp"
#include "diff/tiles.hpp"

namespace ttrace {
namespace {

const LogicalTensor* find_like(const LogicalTensors& tensors, const LogicalTensor& wanted,
                               const Key& key) {
  const auto found = tensors.find(key);
  const bool fits = found != tensors.end() && found->second.shape == wanted.shape &&
                    is_floating(found->second.dtype) && readable(found->second);
  return fits ? &found->second : nullptr;
}

// "1 + 4.77e-07": the digits that matter are behind the zeros.
std::string one_and(double deviation) {
  return std::string("1 ") + (deviation < 0 ? "- " : "+ ") + short_number(std::fabs(deviation));
}

}  // namespace

LogicalTensors tensors_like(const Trace& trace, std::int64_t iteration,
                            const MicrobatchNumbers& numbers) {
  const ShardGroups groups = group_shards(trace, iteration, numbers);
  return place_all(groups, declared_layouts(groups, {}));
}

void Judge::prepare_noise() {
  if (noise_ == nullptr) return;
  statistics_.resize(outcomes_.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    const PairMetrics& metrics = measured_[i];
    const bool valued = metrics.evidence == Evidence::read || metrics.evidence == Evidence::hash;
    if (alignment_.pairs[i].same_as == kNoPair && valued && metrics.total.nonfinite_mismatch == 0 &&
        limits_.tensors[i].rule == Rule::relative) {
      order.push_back(i);
    }
  }
  // The largest first: the last to end must not be a large one that began last.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return measured_[one].total.count > measured_[other].total.count;
  });
  in_parallel(order.size(),
              [&](std::size_t at) { statistics_[order[at]] = statistics_of(order[at]); });
}

// nullopt: there is no noise to judge it by.
std::optional<StatisticsResult> Judge::statistics_of(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  StatisticsInput input;
  if (!noise_of(pair, input)) return std::nullopt;
  if (pair.key.phase == Phase::grad) input.floor = kTermRounding * floors_.rounding(i);
  StatisticsResult result = statistics(input, noise_->limits);
  if (!result.equal && input.tensor == TensorClass::softmax_backward) {
    const auto delta = attention_.rounding_of_delta(pair.key, input.epsilon);
    input.extra = delta ? &*delta : nullptr;
    if (delta) result = statistics(input, noise_->limits);
  }
  return result;
}

bool Judge::judge_noise(std::size_t i) {
  if (noise_ == nullptr || !statistics_[i]) return false;
  const StatisticsResult result = *std::exchange(statistics_[i], std::nullopt);
  const Statistic& worst = result.worst();
  Outcome& outcome = outcomes_[i];
  outcome.error = result.error;
  outcome.limit = result.resolution.norm;
  outcome.rounding = result.rounding;
  outcome.score = result.equal ? 0 : worst.score();
  outcome.statistic = std::string(name_of(worst.kind));
  outcome.resolution = result.resolution;
  outcome.pooled = result.pooled;
  for (const Statistic& statistic : result.all) {
    double& score = outcome.scores.at(static_cast<std::size_t>(statistic.kind));
    score = std::max(score, statistic.score());
  }
  if (!result.differs()) return true;
  add(i, FindingKind::over_limit, outcome.score,
      "relative error " + short_number(result.error) + "; " + outcome.statistic + " " +
          short_number(worst.value) + ", its limit is " + short_number(worst.limit) +
          (worst.where.empty() ? "" : " (" + worst.where + ")"));
  Finding& finding = outcome.findings.back();
  finding.evidence.emplace_back(
      "noise", short_number(result.relative_noise) + " of the tensor's norm; the error is " +
                   short_number(result.error / result.relative_noise) + " times that");
  if (std::fabs(result.factor - 1) > 3 * result.factor_error) {
    finding.evidence.emplace_back(
        "common factor", one_and(result.factor - 1) + " +- " + short_number(result.factor_error));
  }
  return true;
}

// One number is no statistic; and what has no partner in every sample is judged without.
bool Judge::noise_of(const Pair& pair, StatisticsInput& input) const {
  const Key& key = pair.key;
  const bool gradient = key.phase == Phase::grad && (key.slot == "reduced" || key.slot == "local");
  const bool activation = key.phase == Phase::forward || key.phase == Phase::backward;
  if (!(activation || gradient) || key.module.empty()) return false;
  if (key.phase == Phase::grad && key.module == kRootModule) return false;
  if (element_count(pair.reference->shape) < 2 || !is_floating(pair.candidate->dtype)) return false;
  if (!readable_with_sums(*pair.candidate)) return false;
  const LogicalTensor& own = *pair.reference;
  input.reference = noise_->truth == nullptr ? &own : find_like(*noise_->truth, own, key);
  if (input.reference == nullptr || !readable(*input.reference)) return false;
  for (const LogicalTensors* sample : noise_->samples) {
    const LogicalTensor* tensor = find_like(*sample, own, key);
    if (tensor == nullptr) return false;
    input.noise.push_back(tensor);
  }
  input.candidate = pair.candidate;
  input.scale = scale_for(key, seeds_);
  input.epsilon = epsilon(pair.candidate->dtype);
  input.method = noise_->method;
  input.tensor = class_of(key);
  input.gain = key.phase == Phase::grad ? 1 : gain_of(pair);
  return !input.noise.empty();
}

TensorClass Judge::class_of(const Key& key) const {
  if (key.phase == Phase::grad) return TensorClass::parameter;
  return attention_.leaves_softmax(key) ? TensorClass::softmax_backward : TensorClass::ordinary;
}

// sqrt(1 + k/2) for what k ranks may have computed as a sum, each rounding its own addend: all that
// are not told apart by the last dimension.
double Judge::gain_of(const Pair& pair) const {
  const LogicalTensor& tensor = *pair.candidate;
  std::map<std::string, std::set<std::uint64_t>> seen;
  std::map<std::string, std::uint64_t> sizes;
  for (const PlacedShard& placed : tensor.shards) {
    for (const auto& [axis, position] : placed.shard.where) {
      seen[axis].insert(position.coord);
      sizes[axis] = position.size;
    }
  }
  if (!tensor.layout.dims.empty()) {
    for (const Cut& cut : tensor.layout.dims.back()) seen.erase(cut.axis);
  }
  double addends = 1;
  for (const auto& [axis, coordinates] : seen) {
    if (coordinates.size() > 1) addends *= static_cast<double>(sizes[axis]);
  }
  return addends > 1 ? std::sqrt(1 + addends / 2) : 1;
}

}  // namespace ttrace
