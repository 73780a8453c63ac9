// SPDX-License-Identifier: Apache-2.0
// Layers and experts that each rank counts from 0. A pipeline stage that holds layers 2 and 3 may
// call them 0 and 1, and no framework says so. Both runs start from the same parameters, so a layer
// is the one of the reference in whose parameters the rank's own are found, bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "libttrace/logical.hpp"

namespace ttrace {

// Of one rank: prefixes of module names that end in a number, with the number that counts.
class ModuleNames {
 public:
  void set(std::string own, std::string logical) { prefixes_[std::move(own)] = std::move(logical); }
  // Members of the list `own` ("blocks.") that were not set: their numbers grow by `step`.
  void shift(std::string own, std::string logical, std::int64_t step) {
    shifts_[std::move(own)] = {std::move(logical), step};
  }
  [[nodiscard]] bool empty() const { return prefixes_.empty(); }
  // The name with its longest known prefix replaced.
  [[nodiscard]] std::string logical(const std::string& module) const;

 private:
  [[nodiscard]] std::string shifted(const std::string& module) const;

  std::map<std::string, std::string> prefixes_;
  std::map<std::string, std::pair<std::string, std::int64_t>> shifts_;
};

// Ranks that need none are left out; so are lists for which parameters do not tell, or say that two
// of a rank's layers are the same one. Members of a list that have no parameters go with their
// neighbours, where these all move by the same number.
using RankNames = std::map<std::int32_t, ModuleNames>;
[[nodiscard]] RankNames find_numbers(const Trace& reference, const Trace& candidate);

// Keys and shards under logical names. `names` must outlive the result.
[[nodiscard]] ShardGroups renamed(ShardGroups groups, const RankNames& names);

}  // namespace ttrace
