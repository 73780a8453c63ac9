// SPDX-License-Identifier: Apache-2.0
// See precondition_terms.hpp.
#include "invariant/precondition_terms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace ttrace::invariant {
namespace {

TypeName dtype_of(Value value) {
  switch (value.kind) {
    case Kind::boolean:
      return TypeName::boolean;
    case Kind::integer:
      return TypeName::integer;
    case Kind::real:
      return TypeName::real;
    case Kind::string:
      return TypeName::string;
    default:
      return TypeName::md_none;
  }
}

// Numbers as large as addresses and hashes: another run has others.
bool of_one_run(Value value) {
  constexpr double kLarge = 0x1p32;
  if (value.kind == Kind::integer) return std::abs(static_cast<double>(value.integer)) >= kLarge;
  return value.kind == Kind::real && std::isfinite(value.real) && std::abs(value.real) >= kLarge;
}

// The terms of one slot while rows are added.
class Collector {
 public:
  Collector(const Values& values, const PreconditionTable& table, std::uint32_t number,
            bool all_constants)
      : values_(values),
        table_(table),
        slot_(table.slots()[number]),
        number_(number),
        count_(table.rows()),
        all_(table.rows()),
        all_constants_(all_constants) {}

  void add(std::uint32_t row, Cell cell) {
    if (slot_.exist) return keep({ClauseType::exist, TypeName::none, number_, {}}, row);
    const Value value = table_.value(number_, cell);
    if (PreconditionTable::differ(cell)) {
      first(dtype_of(value));
      return keep({ClauseType::unequal, dtype_of(value), number_, {}}, row);
    }
    // A field that is None suggests two clauses, which differ in the type only.
    const bool twice = value.kind == Kind::none && !slot_.argument;
    first(twice ? TypeName::none : dtype_of(value));
    if (dtype_ != TypeName::boolean) return constant(value, row);
    if (twice) keep({ClauseType::constant, TypeName::none, number_, value}, row);
    keep({ClauseType::constant, dtype_of(value), number_, value}, row);
  }

  void finish(std::vector<Suggestion>& out) {
    for (Suggestion& entry : kept_) {
      if (allowed(entry.term)) out.push_back(std::move(entry));
    }
    if (collapsed_) {
      out.push_back({{ClauseType::consistent, dtype_, number_, {}}, std::move(all_)});
      return;
    }
    for (auto& [value, rows] : constants_) {
      const Term term{ClauseType::constant, dtype_, number_, value};
      if (allowed(term)) out.push_back({term, std::move(rows)});
    }
  }

 private:
  [[nodiscard]] bool allowed(const Term& term) const {
    if (all_constants_ || term.type != ClauseType::constant) return true;
    return !slot_.only_relative && !of_one_run(term.value);
  }

  void first(TypeName dtype) {
    if (!std::exchange(begun_, true)) dtype_ = dtype;
  }

  void keep(const Term& term, std::uint32_t row) {
    const auto found = std::ranges::find_if(
        kept_, [&](const Suggestion& entry) { return same(values_, entry.term, term); });
    if (found != kept_.end()) return found->rows.insert(row);
    kept_.push_back({term, Rows(count_)});
    kept_.back().rows.insert(row);
  }

  void constant(Value value, std::uint32_t row) {
    all_.insert(row);
    if (collapsed_) return;
    for (auto& [known, rows] : constants_) {
      if (values_.equal(known, value)) return rows.insert(row);
    }
    if (constants_.size() == (dtype_ == TypeName::string ? 4u : 1u)) {
      collapsed_ = true;
      return;
    }
    constants_.emplace_back(value, Rows(count_)).second.insert(row);
  }

  const Values& values_;
  const PreconditionTable& table_;
  const Slot& slot_;
  std::uint32_t number_;
  std::size_t count_;
  std::vector<Suggestion> kept_;
  std::vector<std::pair<Value, Rows>> constants_;
  Rows all_;
  TypeName dtype_ = TypeName::none;
  bool begun_ = false;
  bool collapsed_ = false;
  bool all_constants_;
};

struct Appearance {
  std::uint32_t row = 0;  // of `rows`, by place
  std::uint16_t position = 0;
  std::uint32_t slot = 0;
  auto operator<=>(const Appearance&) const = default;
};

}  // namespace

void Rows::insert(const Rows& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

bool Rows::subset_of(const Rows& other) const {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if ((words_[i] & ~other.words_[i]) != 0) return false;
  }
  return true;
}

std::vector<std::uint32_t> Rows::list() const {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
      out.push_back(static_cast<std::uint32_t>(i * 64) +
                    static_cast<std::uint32_t>(std::countr_zero(word)));
    }
  }
  return out;
}

bool same(const Values& values, const Term& a, const Term& b) {
  if (a.type != b.type || a.slot != b.slot || a.dtype != b.dtype) return false;
  return a.type != ClauseType::constant || values.equal(a.value, b.value);
}

bool holds(const Values& values, const PreconditionTable& table, const Term& term,
           std::size_t row) {
  const Cell cell = table.at(row, term.slot);
  if (cell == Cell::missing) return false;
  const bool differ = PreconditionTable::differ(cell);
  switch (term.type) {
    case ClauseType::constant:
      return !differ && values.equal(table.value(term.slot, cell), term.value);
    case ClauseType::consistent:
      return !differ;
    case ClauseType::unequal:
      return differ;
    case ClauseType::exist:
      return true;
  }
  return false;
}

std::vector<Suggestion> suggest(const Values& values, const PreconditionTable& table,
                                std::span<const std::uint32_t> rows, const SearchRules& rules) {
  std::vector<Appearance> order;
  for (std::uint32_t slot = 0; slot < table.slots().size(); ++slot) {
    for (std::uint32_t place = 0; place < rows.size(); ++place) {
      if (table.at(rows[place], slot) == Cell::missing) continue;
      order.push_back({place, table.position(rows[place], slot), slot});
      break;
    }
  }
  std::ranges::sort(order);
  std::vector<Suggestion> out;
  for (const Appearance& entry : order) {
    Collector collector(values, table, entry.slot, rules.traincheck);
    for (std::size_t place = entry.row; place < rows.size(); ++place) {
      const Cell cell = table.at(rows[place], entry.slot);
      if (cell != Cell::missing) collector.add(rows[place], cell);
    }
    collector.finish(out);
  }
  return out;
}

}  // namespace ttrace::invariant
