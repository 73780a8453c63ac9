// SPDX-License-Identifier: Apache-2.0
// Where an invariant applies: a disjunction of conjunctions of clauses that covers all examples
// where it held and none where it did not (arXiv 2506.14813, section 4.3).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "invariant/invariant.hpp"
#include "invariant/situation.hpp"

namespace ttrace::invariant {

struct SearchRules {
  std::vector<Name> skip;  // no clause on a field whose name contains one of these
  // As TrainCheck 0.2.0 does it, to the clause. Otherwise no clause on what another run cannot
  // have, too: constant process and thread numbers, addresses.
  bool traincheck = false;
};

// nullopt: there is none. Of an inverted condition the search ran on the negative examples.
[[nodiscard]] std::optional<Condition> find_condition(Values& values, const Situations& situations,
                                                      const Examples& examples,
                                                      const SearchRules& rules);

[[nodiscard]] bool holds(const Values& values, const Situations& situations,
                         const Condition& condition, const Example& example);
// Of any number of records together: `unequal` asks that no two agree.
[[nodiscard]] bool holds(const Values& values, const Situations& situations,
                         const Condition& condition, std::span<const SituationId> records);

}  // namespace ttrace::invariant
