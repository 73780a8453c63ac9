// SPDX-License-Identifier: Apache-2.0
// A finding is a difference, or a reason why something could not be compared: a value that a report
// lists, never an exception. Each kind belongs to exactly one place that produces it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libttrace/core/key.hpp"

namespace ttrace {

enum class FindingKind : std::uint8_t {
  missing,         // the reference has it, the candidate does not
  unexpected,      // the candidate has it, the reference does not
  different_data,  // micro-batches whose inputs match none of the other side's
  shape_differs,
  dtype_differs,        // not the same class of type (integer against floating)
  layout_unknown,       // no layout explains the shards: not comparable
  layout_contradicted,  // the content has another layout than the program declared
  hole,                 // elements that no shard holds: a rank or a segment is missing
  overlap,              // elements that two shards hold although they should not
  replica_conflict,     // copies that must be bit-equal are not
  partial_incomplete,   // values still to be added over an axis
  nonfinite,            // NaN or Inf on one side only
  over_limit,           // the error is larger than round-off explains
  not_equal,            // integers or exact copies that differ
  gradient_seed,        // the layout-dependent factor of activation gradients is not explained
  not_compared,         // kept without bytes and the hashes differ, or a kind this version skips
  incomplete_trace,     // a rank lost records, died or was degraded
};

[[nodiscard]] std::string_view name_of(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::over_limit;
  Key key;                          // module "" when it concerns the whole trace
  double score = 0;                 // error / limit; 0 where there is no number
  std::string message;              // one line, in the user's words, with the evidence
  std::vector<std::int32_t> ranks;  // the odd ones, if known
  std::vector<std::pair<std::string, std::string>> evidence;  // name, printed value
};

}  // namespace ttrace
