// SPDX-License-Identifier: Apache-2.0
// The gradient seed. A program divides the loss of a micro-batch by counts that depend on the
// layout (local micro-batches, local tokens), so all activation gradients of a healthy run may be
// larger or smaller than the reference's by one factor: the ratio of such counts, that is of sizes
// of mesh axes. Gradients of activations are compared after it is taken out; reduced gradients as
// they are, because they must come out right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/backend.hpp"
#include "diff/limits.hpp"

namespace ttrace {

struct Seed {
  double measured = 1;    // the most frequent ratio candidate / reference
  double factor = 1;      // what is taken out: a ratio of mesh sizes, or `measured` if none is near
  bool explained = true;  // `factor` is 1 or such a ratio, and `measured` agrees with it
  std::string meaning;    // "dp", "1 / (cp * dp)", "" for 1
  std::uint64_t tensors = 0;   // from which it was read
  std::uint64_t agreeing = 0;  // of these, closely
  // Losses: what a program divides by local counts may be inside the module that returns the loss
  // or after it, so the gradients of losses have factors of their own.
  std::map<Key, double> own;
};
using Seeds = std::map<std::int32_t, Seed>;  // by micro-batch

// Activations' gradients and local ones of parameters are before any reduction.
[[nodiscard]] bool carries_seed(const Key& key);
// By what the candidate is multiplied before it is compared.
[[nodiscard]] double scale_for(const Key& key, const Seeds& seeds);

// The most frequent of these ratios: the centre of the window of 2^(1/20) that holds most.
[[nodiscard]] double most_frequent(std::vector<double> ratios);

// Products of sizes of mesh axes, and their inverses, by value; turns that make up a micro-batch of
// the other run count as an axis.
[[nodiscard]] std::map<double, std::string> explainable_factors(const Trace& reference,
                                                                const Trace& candidate,
                                                                std::uint64_t reference_turns = 1,
                                                                std::uint64_t candidate_turns = 1);

[[nodiscard]] Seed explain_seed(double measured, double tolerance,
                                const std::map<double, std::string>& factors);

// The seed of a micro-batch whose tensors have these ratios. Only a factor that most of them share
// closely is a seed; else the nearest explainable one is taken, and what differs is found later.
[[nodiscard]] Seed seed_of(const std::vector<double>& ratios, double tolerance,
                           const std::map<double, std::string>& factors);

[[nodiscard]] Seeds find_seeds(const Alignment& alignment, const Trace& reference,
                               const Trace& candidate, const Limits& limits,
                               const Backend& backend);

// One finding for each unexplained seed.
[[nodiscard]] std::vector<Finding> seed_findings(const Seeds& seeds, const Limits& limits,
                                                 std::int64_t iteration);

}  // namespace ttrace
