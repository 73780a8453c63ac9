// SPDX-License-Identifier: Apache-2.0
// See precondition_table.hpp.
#include "invariant/precondition_table.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace ttrace::invariant {
namespace {

bool answers(Value value) {
  if (value.kind == Kind::real) return !std::isnan(value.real);
  return value.present() && value.kind != Kind::list && value.kind != Kind::object;
}

// Process and thread numbers and addresses are never those of another run.
bool of_one_run(std::string_view column) {
  return column == "process_id" || column == "thread_id" ||
         column.find("_TRAINCHECK_") != std::string_view::npos ||
         column.find("_ML_DAIKON") != std::string_view::npos;
}

}  // namespace

PreconditionTable::PreconditionTable(Values& values, const Situations& situations,
                                     const SearchRules& rules)
    : values_(values), situations_(situations), rules_(rules) {}

bool PreconditionTable::skipped(Name property) {
  const auto [entry, added] = skipped_.try_emplace(property, false);
  if (added) {
    const std::string_view text = values_.text(property);
    entry->second = std::ranges::any_of(rules_.skip, [&](Name part) {
      return text.find(values_.text(part)) != std::string_view::npos;
    });
  }
  return entry->second;
}

std::optional<std::size_t> PreconditionTable::slot_of(const Slot& slot, std::size_t guess,
                                                      bool asking) {
  const auto same = [&slot](const Slot& other) {
    return other.property == slot.property && other.argument == slot.argument &&
           other.exist == slot.exist;
  };
  if (guess < slots_.size() && same(slots_[guess])) return guess;
  const auto found = std::ranges::find_if(slots_, same);
  if (found != slots_.end()) return static_cast<std::size_t>(found - slots_.begin());
  const bool field = !slot.exist && !slot.argument;
  if (!asking || (field && skipped(slot.property))) return std::nullopt;
  Slot fresh = slot;
  fresh.only_relative =
      !rules_.traincheck && (of_one_run(values_.text(slot.property)) ||
                             (slot.argument && of_one_run(values_.text(*slot.argument))));
  slots_.push_back(fresh);
  columns_.emplace_back();
  columns_.back().cells.resize(rows_);
  columns_.back().positions.resize(rows_);
  return slots_.size() - 1;
}

std::uint32_t PreconditionTable::number_of(Column& column, Value value) {
  // Kinds are few, and values of different kinds that share bits are told apart below.
  const std::uint64_t key = value.bits ^ (static_cast<std::uint64_t>(value.kind) << 60);
  if (!column.values.empty() && key == column.last_key &&
      identical(column.values[column.last_number], value)) {
    return column.last_number;
  }
  auto [entry, added] = column.numbers.try_emplace(key, column.values.size());
  if (!added && !identical(column.values[entry->second], value)) {
    const auto found =
        std::ranges::find_if(column.values, [&](Value other) { return identical(other, value); });
    if (found != column.values.end()) {
      return static_cast<std::uint32_t>(found - column.values.begin());
    }
    added = true;
  }
  const auto number = added ? static_cast<std::uint32_t>(column.values.size()) : entry->second;
  if (added) column.values.push_back(value);
  column.last_key = key;
  column.last_number = number;
  return number;
}

void PreconditionTable::set(const Slot& slot, Value value, bool different, bool asking) {
  const std::optional<std::size_t> number = slot_of(slot, next_guess_, asking);
  if (!number) return;
  next_guess_ = *number + 1;
  Column& column = columns_[*number];
  const std::uint32_t code = (number_of(column, value) + 1) * 2 + (different ? 1 : 0);
  column.cells.back() = static_cast<Cell>(code);
  column.positions.back() = position_++;
}

void PreconditionTable::add_fields(const Example& example, bool asking) {
  const Situation& first = situations_[example.first];
  const Situation* second = example.pair ? &situations_[example.second] : nullptr;
  std::size_t at = 0;  // in second: both have the same order, mostly
  for (const Field& field : first.fields) {
    if (!answers(field.value)) continue;
    bool different = false;
    if (second != nullptr) {
      const auto& others = second->fields;
      while (at < others.size() && others[at].column != field.column) ++at;
      if (at == others.size()) {
        const auto found = std::ranges::find(others, field.column, &Field::column);
        at = static_cast<std::size_t>(found - others.begin());
      }
      if (at == others.size()) {
        at = 0;
        continue;
      }
      const Value other = others[at++].value;
      if (!answers(other)) continue;
      different = !values_.equal(field.value, other);
    }
    set({field.column, std::nullopt}, field.value, different, asking);
  }
}

void PreconditionTable::add_managers(const Example& example, bool asking) {
  for (const Active& active : situations_[example.first].managers) {
    const Name property =
        values_.name(std::string(kManagers) + std::string(values_.text(active.manager)));
    set({property, std::nullopt, true}, none(), false, asking);
    if (active.arguments.kind != Kind::object) continue;
    for (const Member& argument : values_.members(active.arguments)) {
      if (!answers(argument.value)) continue;
      set({property, argument.name}, argument.value, false, asking);
    }
  }
}

void PreconditionTable::add(std::span<const CountedExample> examples, bool asking) {
  for (const CountedExample& entry : examples) {
    ++rows_;
    for (Column& column : columns_) {
      column.cells.push_back(Cell::missing);
      column.positions.push_back(0);
    }
    next_guess_ = 0;
    position_ = 0;
    add_fields(entry.example, asking);
    add_managers(entry.example, asking);
  }
}

}  // namespace ttrace::invariant
