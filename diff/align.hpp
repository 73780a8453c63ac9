// SPDX-License-Identifier: Apache-2.0
// Which tensor of the reference belongs to which of the candidate, and what has no partner.
// How many tensors ought to be there does not depend on what was hooked: the reference's lists of
// modules and parameters say it, and what neither side captured is counted and explained.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "diff/flow.hpp"
#include "libttrace/finding.hpp"
#include "libttrace/logical.hpp"

namespace ttrace {

inline constexpr std::size_t kNoPair = ~std::size_t{0};

struct Pair {
  Key key;
  const LogicalTensor* reference = nullptr;
  const LogicalTensor* candidate = nullptr;
  // The pair with the same storage on both sides: its result is this one's, too.
  std::size_t same_as = kNoPair;
  std::string note;     // how it came to be a pair, where that is not plain
  bool padded = false;  // the candidate had more, filled up in one dimension
};

// Expected, but captured by neither side, or left out by the candidate with a good reason.
struct NotCaptured {
  Key key;
  std::string reason;
};

// One side, prepared: everything of one iteration.
struct Side {
  const Trace* trace = nullptr;
  std::int64_t iteration = 0;
  ShardGroups groups;
  LayoutDecisions layouts;
  LogicalTensors tensors;
};

struct Alignment {
  std::vector<Pair> pairs;        // in key order
  std::vector<Finding> findings;  // missing, unexpected, not comparable
  std::vector<NotCaptured> not_captured;
  std::array<std::uint64_t, kPhaseCount> expected{};
  std::uint64_t edges = 0;    // inputs that are aliases on both sides: data flow, not tensors
  std::uint64_t skipped = 0;  // collectives, whose buffers depend on the layout
};

// Globs as the shell's, over the whole printed key; "" matches all.
[[nodiscard]] bool matches(const std::string& filter, const Key& key);

// `findings` are those of the inference of layouts: what has no layout is explained by them.
[[nodiscard]] Alignment align(Side& reference, Side& candidate, const Flow& flow,
                              const std::vector<Finding>& findings, const std::string& filter);

// ---- steps of align ----

// Tensors that only one side has, as few findings as explain them: a module that is missing with
// all that is in it is one, under the name of the outermost.
struct OneSided {
  FindingKind kind = FindingKind::missing;
  std::vector<Key> keys;
  const ShardGroups* other = nullptr;  // the side that lacks them
  const Trace* owner = nullptr;        // the side that has them
  const Trace* lacking = nullptr;
};
[[nodiscard]] std::vector<Finding> collapse(const OneSided& one_sided, const Flow& flow);

// What modules and parameters of the reference promise, and neither side has: appended to
// not_captured, counted in expected.
void count_promises(const Side& reference, const std::string& filter, Alignment& alignment);

// Why a trace lacks something of that module, from its events; "" when no event says.
[[nodiscard]] std::string reason_in_events(const Trace& trace, const Key& key);

}  // namespace ttrace
