// SPDX-License-Identifier: Apache-2.0
// One fault violates many invariants. They are grouped by what most of them name: the function that
// is gone is in all invariants about its order, whatever the other function.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "invariant/report.hpp"

namespace ttrace::invariant {
namespace {

// What an invariant names: functions, and attributes of variables or tensors.
struct Thing {
  bool attribute = false;
  Name name = 0;
  friend auto operator<=>(const Thing&, const Thing&) = default;
};

std::set<Thing> things_of(const Values& values, const Invariant& invariant) {
  std::set<Thing> things;
  for (const Param& param : invariant.params) {
    switch (param.type) {
      case ParamType::api:
        things.insert({false, param.api});
        break;
      case ParamType::variable_type:
      case ParamType::variable_name:
        things.insert({true, param.attribute});
        break;
      case ParamType::input_output:
        if (param.path.kind == Kind::list && !values.elements(param.path).empty()) {
          const Value first = values.elements(param.path)[0];
          if (first.kind == Kind::string) things.insert({true, first.ref});
        }
        break;
    }
  }
  return things;
}

// Where an invariant was violated first.
std::tuple<std::int64_t, std::int64_t> first_of(const Judgement& judgement) {
  if (judgement.evidence.empty()) return {INT64_MAX, INT64_MAX};
  const Place& place = judgement.evidence[0].place;
  return {place.step, place.time};
}

class Grouping {
 public:
  Grouping(const CheckResult& result, const Values& values) : result_(result), values_(values) {
    for (std::size_t i = 0; i < result.judgements.size(); ++i) {
      if (result.judgements[i].verdict != Verdict::failed) continue;
      for (const Thing& thing : things_of(values, *result.judgements[i].invariant)) {
        named_[thing].insert(i);
      }
    }
  }

  std::vector<Culprit> run() {
    std::vector<Culprit> groups;
    while (!named_.empty()) {
      const auto most =
          std::max_element(named_.begin(), named_.end(),
                           [this](const Entry& a, const Entry& b) { return weaker(a, b); });
      if (most->second.empty()) break;
      groups.push_back(group_of(most->first, most->second));
      const std::set<std::size_t> taken = most->second;
      for (auto& [thing, judgements] : named_) {
        for (const std::size_t i : taken) judgements.erase(i);
      }
    }
    std::ranges::stable_sort(groups, {}, [this](const Culprit& group) {
      return std::get<0>(first_of(result_.judgements[group.judgements[0]]));
    });
    return groups;
  }

 private:
  using Entry = std::pair<const Thing, std::set<std::size_t>>;

  // The fewest invariants, then the latest, then the name that sorts last.
  [[nodiscard]] bool weaker(const Entry& a, const Entry& b) const {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    const auto one = earliest(a.second);
    const auto other = earliest(b.second);
    if (one != other) return one > other;
    return values_.text(a.first.name) > values_.text(b.first.name);
  }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> earliest(
      const std::set<std::size_t>& judgements) const {
    std::tuple<std::int64_t, std::int64_t> first{INT64_MAX, INT64_MAX};
    for (const std::size_t i : judgements) first = std::min(first, first_of(result_.judgements[i]));
    return first;
  }

  [[nodiscard]] Culprit group_of(const Thing& thing, const std::set<std::size_t>& members) const {
    Culprit group;
    group.name = thing.name;
    group.attribute = thing.attribute;
    group.judgements.assign(members.begin(), members.end());
    std::ranges::stable_sort(group.judgements, {},
                             [this](std::size_t i) { return first_of(result_.judgements[i]); });
    return group;
  }

  const CheckResult& result_;
  const Values& values_;
  std::map<Thing, std::set<std::size_t>> named_;
};

}  // namespace

std::vector<Culprit> culprits(const CheckResult& result, const Values& values) {
  return Grouping(result, values).run();
}

}  // namespace ttrace::invariant
