// SPDX-License-Identifier: Apache-2.0
// What a precondition's clauses ask, as a table: a row an example, a column a question ("the
// stage", "the dtype of the active autocast"). The search reads nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "invariant/precondition.hpp"

namespace ttrace::invariant {

struct Slot {
  Name property = 0;             // a column of the records, or a context manager's name there
  std::optional<Name> argument;  // of a context manager
  bool exist = false;            // of a context manager: is it active?
  bool only_relative = false;    // no constant clause: another run has other values

  bool operator==(const Slot&) const = default;
};

struct Cell {
  enum class Kind : std::uint8_t { missing, one, different };
  Kind kind = Kind::missing;
  std::uint16_t position = 0;  // in the order of the example's own questions
  Value value;                 // of `different` the first record's
};

class PreconditionTable {
 public:
  // Columns are the questions that the first `asking` examples can answer.
  PreconditionTable(Values& values, const Situations& situations, const SearchRules& rules);
  void add(std::span<const CountedExample> examples, bool asking);

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  [[nodiscard]] const Cell& at(std::size_t row, std::size_t slot) const {
    return columns_[slot][row];
  }

 private:
  // The slot's number; none when rules leave it out or it is not among the questions.
  std::optional<std::size_t> slot_of(const Slot& slot, std::size_t guess, bool asking);
  void add_fields(const Example& example, bool asking);
  void add_managers(const Example& example, bool asking);
  void set(const Slot& slot, Cell cell, bool asking);
  [[nodiscard]] bool skipped(Name property);

  Values& values_;
  const Situations& situations_;
  const SearchRules& rules_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Cell>> columns_;
  std::unordered_map<Name, bool> skipped_;
  std::size_t rows_ = 0;
  std::size_t next_guess_ = 0;
  std::uint16_t position_ = 0;
};

inline constexpr std::string_view kManagers = "meta_vars.context_managers.";

}  // namespace ttrace::invariant
