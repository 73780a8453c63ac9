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
  columns_.emplace_back(rows_);
  return slots_.size() - 1;
}

void PreconditionTable::set(const Slot& slot, Cell cell, bool asking) {
  const std::optional<std::size_t> number = slot_of(slot, next_guess_, asking);
  if (!number) return;
  next_guess_ = *number + 1;
  cell.position = position_++;
  columns_[*number].back() = cell;
}

void PreconditionTable::add_fields(const Example& example, bool asking) {
  const Situation& first = situations_[example.first];
  const Situation* second = example.pair ? &situations_[example.second] : nullptr;
  std::size_t at = 0;  // in second: both have the same order, mostly
  for (const Field& field : first.fields) {
    Cell cell{Cell::Kind::one, 0, field.value};
    if (!answers(field.value)) continue;
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
      if (!values_.equal(field.value, other)) cell.kind = Cell::Kind::different;
    }
    set({field.column, std::nullopt}, cell, asking);
  }
}

void PreconditionTable::add_managers(const Example& example, bool asking) {
  for (const Active& active : situations_[example.first].managers) {
    const Name property =
        values_.name(std::string(kManagers) + std::string(values_.text(active.manager)));
    set({property, std::nullopt, true}, {Cell::Kind::one, 0, none()}, asking);
    if (active.arguments.kind != Kind::object) continue;
    for (const Member& argument : values_.members(active.arguments)) {
      if (!answers(argument.value)) continue;
      set({property, argument.name}, {Cell::Kind::one, 0, argument.value}, asking);
    }
  }
}

void PreconditionTable::add(std::span<const CountedExample> examples, bool asking) {
  for (const CountedExample& entry : examples) {
    ++rows_;
    for (std::vector<Cell>& column : columns_) column.emplace_back();
    next_guess_ = 0;
    position_ = 0;
    add_fields(entry.example, asking);
    add_managers(entry.example, asking);
  }
}

}  // namespace ttrace::invariant
