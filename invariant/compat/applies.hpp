// SPDX-License-Identifier: Apache-2.0
// Where an invariant applies, for checks: preconditions are looked up by situation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "invariant/compat/relation.hpp"

namespace ttrace::invariant::compat {

class Applies {
 public:
  Applies(Context& context, const Invariant& invariant);
  // Of an example with one record.
  [[nodiscard]] bool at(Row row);
  [[nodiscard]] bool at(Row first, Row second);
  [[nodiscard]] bool at(std::span<const Row> rows);

 private:
  enum class Known : std::uint8_t { no_answer, yes, no };

  Context& context_;
  const Condition* condition_ = nullptr;  // none: never true
  std::vector<Known> known_;              // by situation
};

// Notes that the invariant was violated, with the records that show it.
void violate(const Context& context, Outcome& outcome, std::initializer_list<Row> rows);
// It applied somewhere; passed unless violated.
void trigger(Outcome& outcome);

}  // namespace ttrace::invariant::compat
