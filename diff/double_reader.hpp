// SPDX-License-Identifier: Apache-2.0
// A logical tensor as doubles, whatever its shards are: where these are addends that nobody has
// added up yet, as their sums.
#pragma once

#include <cstddef>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// Whether DoubleReader can read it: all is there, though sums may still have to be made.
[[nodiscard]] bool readable_with_sums(const LogicalTensor& tensor);

// One tensor as doubles; where shards are addends, their sums.
class DoubleReader {
 public:
  explicit DoubleReader(const LogicalTensor& tensor);
  void read(const Box& box, std::vector<double>& out) const;
  [[nodiscard]] double at(const Shape& position) const;

 private:
  const LogicalTensor* tensor_;
  std::vector<LogicalTensor> addends_;  // empty: the tensor itself is read
  mutable std::vector<std::byte> bytes_;
};

}  // namespace ttrace
