// SPDX-License-Identifier: Apache-2.0
// Which rows go where. A boolean tensor of the forward pass that marks, row by row, the columns
// that take the row (a router's choice of experts) tells how many rows each column takes. Nothing
// is known of names: of any tensor, the choice that counts is the last one before it that has as
// many marks, in all or in one column, as the tensor has rows.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct RoutingChoice {
  Key key;
  std::vector<std::uint64_t> counts;  // rows that each column takes, in the reference
  std::uint64_t total = 0;
  std::uint64_t rows = 0;
  std::uint64_t differing = 0;  // rows that the candidate sends elsewhere
};

class Routing {
 public:
  Routing(const LogicalTensors& reference, const ShardGroups& candidate,
          const std::vector<LayoutRule>& rules);

  [[nodiscard]] bool empty() const { return choices_.empty(); }
  // nullptr when nothing was chosen before, or nothing that has to do with so many rows.
  [[nodiscard]] const RoutingChoice* before(const Key& key, std::uint64_t rows) const;
  // The first that the candidate has not; nullptr when it has all of them.
  [[nodiscard]] const RoutingChoice* first_differing() const;

 private:
  struct Placed {
    std::int32_t rank = 0;
    std::uint64_t sequence = 0;
    RoutingChoice choice;
  };
  void read(const LogicalTensor& tensor);
  void compare(const ShardGroups& candidate, const std::vector<LayoutRule>& rules);

  const LogicalTensors& reference_;
  std::map<std::int32_t, std::vector<Placed>> choices_;  // by micro-batch
};

// The forward tensor that an activation or its gradient belongs to.
[[nodiscard]] Key forward_of(Key key);

}  // namespace ttrace
