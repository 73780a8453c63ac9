// SPDX-License-Identifier: Apache-2.0
// What inference and checking share while they read traces: the pool of values, the situations met
// so far, what columns mean and how parameters of functions are called.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "invariant/columns.hpp"
#include "invariant/signature.hpp"
#include "invariant/situation.hpp"

namespace ttrace::invariant {

struct World {
  World(Values& pool, const Signatures* known) : values(pool), columns(pool), signatures(known) {}

  Values& values;
  Situations situations;
  std::unordered_map<SituationId, SituationId> steady;  // without the step, see separate.cpp
  Columns columns;
  const Signatures* signatures;  // nullptr: positional arguments keep their positions
  // Counters (columns) that preconditions ask for by more than the first steps, which is what
  // invariants from elsewhere may do.
  std::unordered_set<Name> counted;
  // The last state records of a process may be missing: what TrainCheck's default tracker loses.
  bool loses_tail = false;
  // Of the event that is told.
  std::int64_t process = 0;

  Name name(std::string_view text) { return values.name(text); }
};

}  // namespace ttrace::invariant
