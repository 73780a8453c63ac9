// SPDX-License-Identifier: Apache-2.0
// A logical tensor as doubles, whatever its shards are: where these are addends that nobody has
// added up yet, as their sums.
#pragma once

#include <cstddef>
#include <vector>

#include "libttrace/box_view.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

// Whether DoubleReader can read it: all is there, though sums may still have to be made.
[[nodiscard]] bool readable_with_sums(const LogicalTensor& tensor);

// Floats of any type, packed.
struct StoredValues {
  DType type = DType::float64;
  const std::byte* data = nullptr;
};

// One tensor as doubles; where shards are addends, their sums.
class DoubleReader {
 public:
  explicit DoubleReader(const LogicalTensor& tensor);
  void read(const Box& box, std::vector<double>& out) const;
  // As they are stored where they are floats, in place where they lie in one piece. Valid until
  // this reader reads again.
  [[nodiscard]] StoredValues stored(const Box& box) const;
  [[nodiscard]] double at(const Shape& position) const;

 private:
  const LogicalTensor* tensor_;
  std::vector<LogicalTensor> addends_;  // empty: the tensor itself is read
  mutable std::vector<std::byte> bytes_;
  mutable std::vector<double> doubles_;
  mutable BoxView view_;
};

}  // namespace ttrace
