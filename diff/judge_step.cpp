// SPDX-License-Identifier: Apache-2.0
// What the optimizer made of the gradients. See judging.hpp, update.hpp.
#include <algorithm>
#include <cmath>

#include "diff/judging.hpp"

namespace ttrace {
namespace {

constexpr double kLargestStray = 2;  // of updates: Adam's are the learning rate at the most

}  // namespace

// Relative; for what is made of gradients, widened as theirs was by a floor.
double Judge::plain_limit(std::size_t i) {
  const TensorLimit& limit = limits_.tensors[i];
  const Key& key = alignment_.pairs[i].key;
  if (!limits_.floors) return limit.relative;
  if (turn_of(key) == Turn::norms) return limit.relative + norm_limit();
  if (turn_of(key) == Turn::first) return limit.relative;
  const std::size_t gradient = gradient_of(key);
  if (gradient == kNoPair || !(limits_.tensors[gradient].relative > 0)) return limit.relative;
  const double widened = outcomes_[gradient].limit / limits_.tensors[gradient].relative;
  return limit.relative * std::max(1.0, widened);
}

std::size_t Judge::gradient_of(const Key& key) const {
  Key gradient = key;
  gradient.phase = Phase::grad;
  gradient.slot = "reduced";
  const auto found = index_.find(gradient);
  return found == index_.end() ? kNoPair : found->second;
}

// The error of the norm of all gradients, if each has an error as large as its limit.
double Judge::norm_limit() const {
  double squares = 0, errors = 0;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    const Key& key = alignment_.pairs[i].key;
    if (key.phase != Phase::grad || key.slot != "reduced" || key.module == kRootModule) continue;
    const double square = measured_[i].total.sums.reference_squares;
    squares += square;
    errors += square * outcomes_[i].limit * outcomes_[i].limit;
  }
  return squares > 0 ? std::sqrt(errors / squares) : 0;
}

void Judge::judge_update(std::size_t i) {
  const Key& key = alignment_.pairs[i].key;
  Outcome& outcome = outcomes_[i];
  const Metrics& total = measured_[i].total;
  const std::size_t gradient = gradient_of(key);
  UpdateTensors tensors{alignment_.pairs[i].reference, alignment_.pairs[i].candidate,
                        before_step(key), nullptr, nullptr};
  AccumulateUpdate accumulate;
  const double own = limits_.tensors[i].own_epsilon;
  accumulate.own_epsilon = own;
  if (tensors.before != nullptr) {
    accumulate.before_epsilon = std::max(own, epsilon(tensors.before->dtype));
  }
  if (gradient != kNoPair) {
    tensors.gradient = alignment_.pairs[gradient].reference;
    tensors.candidate_gradient = alignment_.pairs[gradient].candidate;
    const Metrics& of_gradient = measured_[gradient].total;
    const double count = static_cast<double>(std::max<std::uint64_t>(1, of_gradient.count));
    accumulate.gradient_error =
        outcomes_[gradient].limit * std::sqrt(of_gradient.sums.reference_squares / count);
    accumulate.threshold = limits_.update_mask * accumulate.gradient_error;
  }
  const double norm = std::sqrt(total.sums.reference_squares);
  const double relative_limit = plain_limit(i);
  const auto masked = total.unequal == 0 ? std::nullopt : measure_update(tensors, accumulate);
  if (!masked) {  // equal; or nothing to tell the update from the parameter
    return settle(i, std::sqrt(total.sums.error_squares), (relative_limit + own) * norm, norm);
  }
  outcome.excluded = masked->excluded;
  judge_left_out(i, *masked, gradient);
  settle(i, std::sqrt(masked->error_squares),
         std::hypot(relative_limit * std::sqrt(masked->update_squares),
                    std::sqrt(masked->allowed_squares)) +
             own * std::sqrt(masked->reference_squares),
         norm);
  if (outcome.findings.empty() || outcome.findings.back().kind != FindingKind::over_limit) return;
  outcome.findings.back().evidence.emplace_back(
      "left out", std::to_string(masked->excluded) + " of " +
                      std::to_string(masked->excluded + masked->kept) +
                      " elements, whose gradient is within its own rounding");
}

// An update grows with its gradient at most, and the gradient may be off by the threshold.
void Judge::judge_left_out(std::size_t i, const UpdateSums& sums, std::size_t gradient) {
  if (sums.without_gradient > 0) {
    add(i, FindingKind::not_equal, kHugeScore,
        std::to_string(sums.without_gradient) +
            " elements differ that have no gradient (exactly 0) in either run");
  }
  const double growth = 1 + limits_.update_mask * outcomes_[gradient].limit;
  const double most = kLargestStray * growth * sums.largest_update;
  if (sums.largest_excluded <= most) return;
  add(i, FindingKind::over_limit, score_of(sums.largest_excluded, most),
      "an element whose gradient is within its rounding moved by " +
          short_number(sums.largest_excluded) + ", the largest update of the reference is " +
          short_number(sums.largest_update));
}

// The reference's value that the step changed; a master's own, if it was captured.
const LogicalTensor* Judge::before_step(const Key& key) const {
  Key before = key;
  before.phase = Phase::param;
  for (const char* slot : {key.slot.c_str(), "value"}) {
    before.slot = slot;
    const auto found = reference_.tensors.find(before);
    if (found != reference_.tensors.end()) return &found->second;
  }
  return nullptr;
}

// The step was made by the reference's optimizer from the candidate's own gradient and state, so
// the two did the same arithmetic on each element: units of what was added up, before and after.
void Judge::judge_step(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  const LogicalTensor* before = before_step(pair.key);
  Outcome& outcome = outcomes_[i];
  if (measured_[i].total.unequal == 0) return;
  const double unit = limits_.tensors[i].own_epsilon;
  const std::optional<StepError> worst =
      measure_step(*pair.reference, *pair.candidate, before, unit);
  if (!worst) return add(i, FindingKind::not_compared, 1, "its values cannot be read");
  const double norm = std::sqrt(measured_[i].total.sums.reference_squares);
  const double error = std::sqrt(measured_[i].total.sums.error_squares);
  outcome.error = norm > 0 ? error / norm : error;
  outcome.limit = kStepUlps * unit;
  outcome.rounding = outcome.limit;
  outcome.score = std::min(worst->units / kStepUlps, kHugeScore);
  outcome.statistic = "element";
  if (outcome.score <= 1) return;
  add(i, FindingKind::over_limit, outcome.score,
      "an element is off by " + short_number(worst->units) +
          " units in the last place after the step from equal gradients and states, " +
          short_number(kStepUlps) + " are allowed");
}

}  // namespace ttrace
