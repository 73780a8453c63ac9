// SPDX-License-Identifier: Apache-2.0
// Whether any layout of the family gives shards their shapes, before content is looked at.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct ShapeFit {
  bool exact = false;            // some layout does, other than
  std::optional<Layout> ragged;  // this one, with its sizes
};

// Remembers what it was asked: most tensors of a model have one of a few shapes.
class ShapeFits {
 public:
  [[nodiscard]] const ShapeFit& of(const std::vector<Shard>& shards, const Shape& shape);

 private:
  std::map<std::string, ShapeFit> known_;
};

}  // namespace ttrace
