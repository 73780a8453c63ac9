// SPDX-License-Identifier: Apache-2.0
// See update.hpp.
#include "diff/update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "diff/tiles.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = 65536;

}  // namespace

std::optional<UpdateSums> measure_update(const UpdateTensors& tensors,
                                         const AccumulateUpdate& accumulate) {
  const std::array<const LogicalTensor*, 5> all{tensors.reference, tensors.candidate,
                                                tensors.before, tensors.gradient,
                                                tensors.candidate_gradient};
  for (const LogicalTensor* tensor : all) {
    if (tensor == nullptr || !readable(*tensor)) return std::nullopt;
    if (tensor->shape != tensors.reference->shape) return std::nullopt;
  }
  UpdateSums sums;
  std::array<std::vector<double>, 5> values;
  for (const Box& box : tiles_of(tensors.reference->shape, kTile)) {
    for (std::size_t i = 0; i < all.size(); ++i) read_doubles(*all[i], box, values[i]);
    for (std::size_t i = 0; i < values[0].size(); ++i) {
      accumulate(sums, values[0][i], values[1][i], values[2][i], values[3][i], values[4][i]);
    }
  }
  return sums;
}

std::optional<StepError> measure_step(const LogicalTensor& reference,
                                      const LogicalTensor& candidate, const LogicalTensor* before,
                                      double unit) {
  if (!readable(reference) || !readable(candidate) || candidate.shape != reference.shape) return {};
  const bool has_before =
      before != nullptr && readable(*before) && before->shape == reference.shape;
  StepError worst;
  std::uint64_t first = 0;
  std::vector<double> left, right, old;
  for (const Box& box : tiles_of(reference.shape, kTile)) {
    read_doubles(reference, box, left);
    read_doubles(candidate, box, right);
    old.assign(left.size(), 0.0);
    if (has_before) read_doubles(*before, box, old);
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double error = std::fabs(left[i] - right[i]);
      if (error == 0) continue;
      const double size = std::fabs(old[i]) + std::max(std::fabs(left[i]), std::fabs(right[i]));
      const double units = error / (unit * size);
      if (!(units <= worst.units)) worst = {units, first + i};
    }
    first += left.size();
  }
  return worst;
}

}  // namespace ttrace
