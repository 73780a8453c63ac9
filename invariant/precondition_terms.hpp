// SPDX-License-Identifier: Apache-2.0
// Terms: the clauses that some of the examples suggest, before they are written as clauses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "invariant/precondition_table.hpp"

namespace ttrace::invariant {

// As Python names them; `none` and `md_none` are two spellings of TrainCheck's for None.
enum class TypeName : std::uint8_t { none, md_none, boolean, integer, real, string };

struct Term {
  ClauseType type = ClauseType::constant;
  TypeName dtype = TypeName::none;
  std::uint32_t slot = 0;
  Value value;  // of a constant
};

// Rows of the table, as bits.
class Rows {
 public:
  explicit Rows(std::size_t count) : words_((count + 63) / 64) {}
  void insert(std::size_t row) { words_[row / 64] |= std::uint64_t{1} << (row % 64); }
  void insert(const Rows& other);
  [[nodiscard]] bool subset_of(const Rows& other) const;
  [[nodiscard]] std::vector<std::uint32_t> list() const;
  bool operator==(const Rows&) const = default;

 private:
  std::vector<std::uint64_t> words_;
};

struct Suggestion {
  Term term;
  Rows rows;  // that suggest it
};

[[nodiscard]] bool same(const Values& values, const Term& a, const Term& b);
[[nodiscard]] bool holds(const Values& values, const PreconditionTable& table, const Term& term,
                         std::size_t row);

// What the rows suggest. A question with few answers gives a constant for each, one with many
// answers one `consistent` term; in the order in which TrainCheck's own search meets them.
[[nodiscard]] std::vector<Suggestion> suggest(const Values& values, const PreconditionTable& table,
                                              std::span<const std::uint32_t> rows,
                                              const SearchRules& rules);

}  // namespace ttrace::invariant
