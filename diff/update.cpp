// SPDX-License-Identifier: Apache-2.0
// See update.hpp.
#include "diff/update.hpp"

#include <array>
#include <vector>

#include "diff/tiles.hpp"

namespace ttrace {

std::optional<UpdateSums> measure_update(const UpdateTensors& tensors,
                                         const AccumulateUpdate& accumulate) {
  const std::array<const LogicalTensor*, 5> all{tensors.reference, tensors.candidate,
                                                tensors.before, tensors.gradient,
                                                tensors.candidate_gradient};
  for (const LogicalTensor* tensor : all) {
    if (tensor == nullptr || !readable(*tensor)) return std::nullopt;
    if (tensor->shape != tensors.reference->shape) return std::nullopt;
  }
  constexpr std::uint64_t kTile = 65536;
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

}  // namespace ttrace
