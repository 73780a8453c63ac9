// SPDX-License-Identifier: Apache-2.0
// See precondition.hpp. The search of TrainCheck 0.2.0, on distinct situations instead of examples:
//   terms that every positive example suggests make one conjunction; where that does not rule out
//   all negative ones, the positive ones are split by which of the other terms they suggest, and
//   each part is searched against the negative ones that are left.
#include "invariant/precondition.hpp"

#include <algorithm>
#include <numeric>

#include "invariant/precondition_terms.hpp"

namespace ttrace::invariant {
namespace {

using RowList = std::vector<std::uint32_t>;
using TermSet = std::vector<std::uint32_t>;  // numbers of terms, sorted

constexpr int kMaxDepth = 8;
// Splits may multiply; nothing that needs so many is worth reading. TrainCheck has no such limit.
constexpr int kMaxSplits = 20'000;

class Search {
 public:
  Search(Values& values, const Situations& situations, const SearchRules& rules)
      : values_(values), rules_(rules), table_(values, situations, rules) {}

  std::optional<std::vector<Conjunction>> run(std::span<const CountedExample> positive,
                                              std::span<const CountedExample> negative) {
    if (negative.empty()) return std::vector<Conjunction>(1);
    table_.add(positive, true);
    table_.add(negative, false);
    RowList good(positive.size());
    std::iota(good.begin(), good.end(), 0u);
    RowList bad(negative.size());
    std::iota(bad.begin(), bad.end(), static_cast<std::uint32_t>(positive.size()));
    std::vector<Conjunction> out;
    for (const TermSet& terms : solve(good, bad, 0)) out.push_back(conjunction(terms));
    if (out.empty()) return std::nullopt;
    return out;
  }

 private:
  struct Known {
    std::uint32_t term = 0;
    Rows rows;
    bool always = false;  // suggested by every positive example
  };

  std::uint32_t number_of(const Term& term) {
    for (std::uint32_t i = 0; i < terms_.size(); ++i) {
      if (same(values_, terms_[i], term)) return i;
    }
    terms_.push_back(term);
    return static_cast<std::uint32_t>(terms_.size() - 1);
  }

  bool holds_in(std::uint32_t term, std::uint32_t row) const {
    return holds(values_, table_, terms_[term], row);
  }

  std::vector<Known> known_from(const RowList& good) {
    Rows all(table_.rows());
    for (const std::uint32_t row : good) all.insert(row);
    std::vector<Known> out;
    for (Suggestion& entry : suggest(values_, table_, good, rules_)) {
      const std::uint32_t term = number_of(entry.term);
      if (std::ranges::find(pruned_, term) != pruned_.end()) continue;
      const bool always = entry.rows == all;
      out.push_back({term, std::move(entry.rows), always});
    }
    return out;
  }

  // Terms that hold on every negative example rule out nothing.
  void prune(std::vector<Known>& known, const RowList& bad) {
    std::erase_if(known, [&](const Known& entry) {
      const bool useless =
          std::ranges::all_of(bad, [&](std::uint32_t row) { return holds_in(entry.term, row); });
      if (useless) pruned_.push_back(entry.term);
      return useless;
    });
  }

  // The largest sets of examples, as TrainCheck picks them: the order of terms matters.
  static std::vector<Rows> parts_of(const std::vector<Known>& known) {
    std::vector<Rows> distinct;
    for (const Known& entry : known) {
      if (entry.always || std::ranges::find(distinct, entry.rows) != distinct.end()) continue;
      distinct.push_back(entry.rows);
    }
    std::vector<Rows> tops;
    for (const Rows& rows : distinct) {
      const auto related = std::ranges::find_if(
          tops, [&](const Rows& top) { return rows.subset_of(top) || top.subset_of(rows); });
      if (related == tops.end()) {
        tops.push_back(rows);
      } else if (!rows.subset_of(*related)) {
        *related = rows;
      }
    }
    return tops;
  }

  std::vector<TermSet> solve(const RowList& good, const RowList& bad, int depth) {
    if (depth > kMaxDepth || ++splits_ > kMaxSplits) return {};
    std::vector<Known> known = known_from(good);
    RowList still;
    std::ranges::copy_if(bad, std::back_inserter(still), [&](std::uint32_t row) {
      return std::ranges::all_of(
          known, [&](const Known& entry) { return !entry.always || holds_in(entry.term, row); });
    });
    if (depth == 0) prune(known, bad);
    if (still.empty()) return {base_of(known)};
    return split(good, parts_of(known), still, depth);
  }

  static TermSet base_of(const std::vector<Known>& known) {
    TermSet out;
    for (const Known& entry : known) {
      if (entry.always) out.push_back(entry.term);
    }
    std::ranges::sort(out);
    return out;
  }

  std::vector<TermSet> split(const RowList& good, const std::vector<Rows>& parts,
                             const RowList& still, int depth) {
    Rows all(table_.rows());
    for (const std::uint32_t row : good) all.insert(row);
    Rows covered(table_.rows());
    std::vector<TermSet> result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Rows reach = covered;
      for (std::size_t j = i; j < parts.size(); ++j) reach.insert(parts[j]);
      if (!all.subset_of(reach)) return {};
      std::vector<TermSet> found = solve(parts[i].list(), still, depth + 1);
      if (!found.empty()) covered.insert(parts[i]);
      std::ranges::move(found, std::back_inserter(result));
    }
    drop_special(result);
    const bool complete = std::ranges::all_of(good, [&](std::uint32_t row) {
      return std::ranges::any_of(result, [&](const TermSet& terms) {
        return std::ranges::all_of(terms, [&](std::uint32_t term) { return holds_in(term, row); });
      });
    });
    return complete ? result : std::vector<TermSet>{};
  }

  // Of two conjunctions of which one implies the other, the special one goes. Once only, although
  // it may be there twice: so does TrainCheck.
  static void drop_special(std::vector<TermSet>& sets) {
    std::vector<TermSet> unique = sets;
    std::ranges::sort(unique);
    const auto rest = std::ranges::unique(unique);
    unique.erase(rest.begin(), rest.end());
    for (const TermSet& set : unique) {
      const bool special = std::ranges::any_of(unique, [&](const TermSet& other) {
        return other != set && std::ranges::includes(set, other);
      });
      if (special) sets.erase(std::ranges::find(sets, set));
    }
  }

  Conjunction conjunction(const TermSet& terms) {
    static constexpr std::string_view kNames[] = {"None", "MD_NONE", "bool", "int", "float", "str"};
    Conjunction out;
    for (const std::uint32_t number : terms) {
      const Term& term = terms_[number];
      const Slot& slot = table_.slots()[term.slot];
      Clause clause{term.type, slot.property, {}, 0, {}};
      clause.dtype = values_.name(kNames[static_cast<std::size_t>(term.dtype)]);
      if (slot.argument) {
        const Value step = values_.string(values_.text(*slot.argument));
        clause.path = values_.list({&step, 1});
      }
      if (term.type == ClauseType::constant) clause.values.push_back(term.value);
      out.push_back(std::move(clause));
    }
    return out;
  }

  Values& values_;
  const SearchRules& rules_;
  PreconditionTable table_;
  std::vector<Term> terms_;
  std::vector<std::uint32_t> pruned_;
  int splits_ = 0;
};

}  // namespace

std::optional<Condition> find_condition(Values& values, const Situations& situations,
                                        const Examples& examples, const SearchRules& rules) {
  auto any = Search(values, situations, rules).run(examples.positive, examples.negative);
  if (any) return Condition{false, std::move(*any)};
  if (examples.positive.empty() || examples.negative.empty()) return std::nullopt;
  any = Search(values, situations, rules).run(examples.negative, examples.positive);
  if (any) return Condition{true, std::move(*any)};
  return std::nullopt;
}

}  // namespace ttrace::invariant
