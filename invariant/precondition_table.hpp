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

// An answer, small: a pair of variables may have hundreds of thousands of examples.
enum class Cell : std::uint32_t { missing = 0 };

class PreconditionTable {
 public:
  // Columns are the questions that the first `asking` examples can answer.
  PreconditionTable(Values& values, const Situations& situations, const SearchRules& rules);
  void add(std::span<const CountedExample> examples, bool asking);

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  [[nodiscard]] Cell at(std::size_t row, std::size_t slot) const {
    return columns_[slot].cells[row];
  }
  // The place of the answer among all of the row's.
  [[nodiscard]] std::uint16_t position(std::size_t row, std::size_t slot) const {
    return columns_[slot].positions[row];
  }
  // Whether the example's records differ; then the value is the first one's.
  [[nodiscard]] static bool differ(Cell cell) {
    return (static_cast<std::uint32_t>(cell) & 1u) != 0;
  }
  [[nodiscard]] Value value(std::size_t slot, Cell cell) const {
    return columns_[slot].values[(static_cast<std::uint32_t>(cell) >> 1) - 1];
  }

 private:
  struct Column {
    std::vector<Cell> cells;  // (number of the value + 1) * 2, and 1 when the records differ
    std::vector<std::uint16_t> positions;
    std::vector<Value> values;
    std::unordered_map<std::uint64_t, std::uint32_t> numbers;  // of values, by kind and bits
    std::uint64_t last_key = 0;
    std::uint32_t last_number = 0;
  };

  // The slot's number; none when rules leave it out or it is not among the questions.
  std::optional<std::size_t> slot_of(const Slot& slot, std::size_t guess, bool asking);
  void add_fields(const Example& example, bool asking);
  void add_managers(const Example& example, bool asking);
  void set(const Slot& slot, Value value, bool different, bool asking);
  [[nodiscard]] bool skipped(Name property);
  static std::uint32_t number_of(Column& column, Value value);

  Values& values_;
  const Situations& situations_;
  const SearchRules& rules_;
  std::vector<Slot> slots_;
  std::vector<Column> columns_;
  std::unordered_map<Name, bool> skipped_;
  std::size_t rows_ = 0;
  std::size_t next_guess_ = 0;
  std::uint16_t position_ = 0;
};

inline constexpr std::string_view kManagers = "meta_vars.context_managers.";

}  // namespace ttrace::invariant
