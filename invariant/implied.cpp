// SPDX-License-Identifier: Apache-2.0
#include "invariant/implied.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "invariant/invariant_order.hpp"

namespace ttrace::invariant {
namespace {

bool is_contain(const Values& values, const Invariant& invariant) {
  return values.text(invariant.relation) == "APIContainRelation" && invariant.params.size() == 2;
}

bool unconditional(const Invariant& invariant) {
  return std::ranges::all_of(invariant.precondition, [](const GroupCondition& entry) {
    return !entry.condition.inverted && entry.condition.any.size() == 1 &&
           entry.condition.any[0].empty();
  });
}

bool same_precondition(const Values& values, const Invariant& a, const Invariant& b) {
  return compare(values, a.precondition[0].condition, b.precondition[0].condition) == 0;
}

struct LessParam {
  const Values* values;
  bool operator()(const Param& a, const Param& b) const { return compare(*values, a, b) < 0; }
};

class Contains {
 public:
  explicit Contains(const Values& values, const std::vector<Invariant>& invariants)
      : values_(values), invariants_(invariants) {
    for (std::size_t i = 0; i < invariants.size(); ++i) {
      if (is_contain(values, invariants[i])) by_parent_[invariants[i].params[0].api].push_back(i);
    }
  }

  // "P calls Q" says no more than "P calls Q with x=1" does.
  [[nodiscard]] bool said_with_arguments(std::size_t number) const {
    const Invariant& plain = invariants_[number];
    if (plain.params[1].type != ParamType::api || plain.params[1].arguments.present()) return false;
    for (const std::size_t other : by_parent_.at(plain.params[0].api)) {
      const Invariant& precise = invariants_[other];
      if (precise.params[1].api == plain.params[1].api && precise.params[1].arguments.present() &&
          precise.params[1].type == ParamType::api && same_precondition(values_, plain, precise)) {
        return true;
      }
    }
    return false;
  }

  // "P contains R" follows from "P always calls Q" and "Q always contains R". No chain leads back
  // to P: two functions that always call each other never end.
  [[nodiscard]] bool said_by_steps(std::size_t number) const {
    const Invariant& whole = invariants_[number];
    const Name parent = whole.params[0].api;
    for (const std::size_t first : by_parent_.at(parent)) {
      const Invariant& step = invariants_[first];
      const Param& middle = step.params[1];
      if (first == number || middle.type != ParamType::api || middle.exception.present()) continue;
      if (middle.api == parent || !same_precondition(values_, step, whole)) continue;
      if (whole.params[1].type == ParamType::api && whole.params[1].api == middle.api) continue;
      if (always(middle.api, whole)) return true;
    }
    return false;
  }

 private:
  // Wherever `whole` applies: the loop's stage and step are those of the calls within it.
  [[nodiscard]] bool always(Name parent, const Invariant& whole) const {
    const auto entry = by_parent_.find(parent);
    if (entry == by_parent_.end()) return false;
    return std::ranges::any_of(entry->second, [&](std::size_t i) {
      const Invariant& step = invariants_[i];
      return compare(values_, step.params[1], whole.params[1]) == 0 &&
             (unconditional(step) || same_precondition(values_, step, whole));
    });
  }
  const Values& values_;
  const std::vector<Invariant>& invariants_;
  std::unordered_map<Name, std::vector<std::size_t>> by_parent_;
};

}  // namespace

std::uint64_t drop_implied(const Values& values, std::vector<Invariant>& invariants) {
  const Contains contains(values, invariants);
  std::vector<bool> drop(invariants.size(), false);
  for (std::size_t i = 0; i < invariants.size(); ++i) {
    if (!is_contain(values, invariants[i])) continue;
    drop[i] = contains.said_with_arguments(i) || contains.said_by_steps(i);
  }
  std::vector<Invariant> kept;
  for (std::size_t i = 0; i < invariants.size(); ++i) {
    if (!drop[i]) kept.push_back(std::move(invariants[i]));
  }
  const std::uint64_t dropped = invariants.size() - kept.size();
  invariants = std::move(kept);
  return dropped;
}

}  // namespace ttrace::invariant
