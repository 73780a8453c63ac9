// SPDX-License-Identifier: Apache-2.0
// Which ranks must hold the same bits of a parameter. A declared layout says it. Without one, ranks
// along a data parallel axis hold copies, and so do ranks whose parameters were bit-equal at the
// start, unless these were constant (a bias of zeros), which says nothing. Of such parameters their
// peers tell, of the same name and shape in modules of the same class, by what the first step made
// of them: most stay copies.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "invariant/builtin/check.hpp"
#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {

using CopySet = std::vector<Shard>;

struct Copies {
  std::vector<CopySet> sets;  // shards of one set are copies; of one shard alone too
  Certainty certainty = Certainty::certain;
  // Not empty: the shards are addends that nobody has added up yet. One list for each part of the
  // tensor, with one shard for each addend.
  std::vector<CopySet> addends;
  std::string how;      // "declared by dtensor", "dp is a data parallel axis", ...
  std::string unknown;  // not empty: why some shards may or may not be copies of each other
};

class CopyFinder {
 public:
  explicit CopyFinder(const Evidence& evidence);

  // Of the shards of one key of a parameter.
  [[nodiscard]] Copies of(const Key& key, const std::vector<Shard>& shards) const;
  // Whether ranks along the axis hold the same parameters.
  [[nodiscard]] bool replicates(const std::string& axis) const { return equal_.count(axis) != 0; }

 private:
  [[nodiscard]] Copies undeclared(const Key& key, const std::vector<Shard>& shards,
                                  const std::vector<std::string>& told_apart) const;
  void learn_from_peers();
  [[nodiscard]] std::string peers_of(std::int32_t rank, const std::string& parameter,
                                     const Shape& shape) const;
  [[nodiscard]] bool peers_are_equal(const Key& key, const Shard& one, const Shard& other) const;
  [[nodiscard]] bool deals_out(const Shard& one, const Shard& other) const;

  const Evidence& evidence_;
  std::set<std::string> equal_;  // axes along which all parameters that tell start bit-equal
  std::set<std::string> cut_;    // axes over which some parameter is declared to be cut
  // parameter -> rank -> start content, of parameters that are not constant
  std::map<std::string, std::map<std::int32_t, Hash128>> start_;
  struct Votes {
    std::size_t equal = 0, different = 0;
  };
  using RankPair = std::pair<std::int32_t, std::int32_t>;
  // By kind of parameter and pair of ranks: parameters that began constant, after the first step.
  std::map<std::pair<std::string, RankPair>, Votes> peers_;
};

// Gradients whose sums over ranks are still to be made when the optimizer is given them: a DTensor
// adds them up by itself.
class GradientSums {
 public:
  GradientSums(const Evidence& evidence, const CopyFinder& finder, std::int64_t iteration);
  // The other addends of what this rank holds of the gradient; nullptr: there are none.
  [[nodiscard]] const CopySet* others(std::int32_t rank, const Record& gradient) const;

 private:
  std::map<std::pair<std::int32_t, const Record*>, CopySet> others_;
};

}  // namespace ttrace::builtin
