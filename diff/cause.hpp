// SPDX-License-Identifier: Apache-2.0
// Causes: what kind of mistake an error looks like. Each is one fact that the numbers show: a
// factor that is the size of a mesh axis, an error that lies in one rank's part, one head or one
// row, a tensor that is the reference's in another order, of another micro-batch or not yet
// reduced. This reads the tensors once more, so only the first few findings get it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "diff/double_reader.hpp"
#include "diff/judge.hpp"
#include "diff/order.hpp"

namespace ttrace {

inline constexpr std::size_t kExplained = 5;  // findings

// Findings that may be consequences come last.
void add_causes(const JudgeInput& input, const std::vector<Outcome>& outcomes,
                std::vector<OrderedFinding>& findings);

// ---- steps ----

// One pair that differs.
struct Suspect {
  const JudgeInput* all = nullptr;
  const Pair* pair = nullptr;
  const PairMetrics* metrics = nullptr;
  double scale = 1;     // multiplies the candidate: its gradient seed is taken out
  double limit = 0;     // relative to the norm; 0: must be equal
  bool update = false;  // a parameter after the step, nearly equal whatever the step did
  // For the steps that read, which are only asked where both are readable.
  const DoubleReader* reference = nullptr;
  const DoubleReader* candidate = nullptr;
  Box region;         // where the error lies: all of the tensor, or the part of one odd rank
  std::string where;  // "", or "rank 3's part of "
};

using Causes = std::vector<Cause>;

// From the sums that are there already: zeros, factors, shares of ranks (cause_size.cpp).
[[nodiscard]] std::optional<Cause> find_zeros(const Suspect& suspect);
[[nodiscard]] std::optional<Cause> find_factor(const Suspect& suspect);
[[nodiscard]] std::optional<Cause> find_share(const Suspect& suspect);
// Each rank's part is the reference's times a factor of its own.
[[nodiscard]] std::optional<Cause> find_factors_of_ranks(const Suspect& suspect);

// Computed from an activation that is padded otherwise than the reference's.
[[nodiscard]] std::optional<Cause> find_padding(const Suspect& suspect);

// Ranks that hold addends: their sum or mean is the reference (cause_reduction.cpp).
[[nodiscard]] std::optional<Cause> find_missing_reduction(const Suspect& suspect);
// The value of another micro-batch, iteration, stage or block (cause_origin.cpp).
[[nodiscard]] std::optional<Cause> find_origin(const Suspect& suspect);

// Rolled, shifted, interleaved, transposed, with its blocks in another order (cause_order.cpp).
[[nodiscard]] std::optional<Cause> find_order(const Suspect& suspect);

// One pass over both: rows and columns that carry the error or are zero on one side, rows in
// another order, values that went through a coarser type (cause_place.cpp). `explained`: not where
// it lies.
[[nodiscard]] Causes find_places(const Suspect& suspect, bool explained);

// ---- words ----

[[nodiscard]] std::string percent(double share);                          // "99.7 %"
[[nodiscard]] std::string counted(std::uint64_t part, std::uint64_t of);  // "3 of 8"

}  // namespace ttrace
