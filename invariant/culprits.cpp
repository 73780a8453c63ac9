// SPDX-License-Identifier: Apache-2.0
// One fault violates many invariants. They are grouped by what most of them name: the function that
// is gone is in all invariants about its order, whatever the other function.
#include <algorithm>
#include <map>
#include <optional>
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
    find_gone();
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
      return std::pair(std::get<0>(first_of(result_.judgements[group.judgements[0]])),
                       !is_gone({group.attribute, group.name}));
    });
    return groups;
  }

 private:
  using Entry = std::pair<const Thing, std::set<std::size_t>>;

  // Functions that should have come before or after others and that were never called at all:
  // whatever else is violated follows from that.
  void find_gone() {
    std::set<Name> called;
    for (const Judgement& judgement : result_.judgements) {
      const auto [anchor, partner] = roles_of(judgement);
      if (judgement.covered > 0 && anchor) called.insert(*anchor);
      if (judgement.covered > judgement.violations && partner) called.insert(*partner);
      const bool order =
          judgement.relation && judgement.relation->group() != "parent_func_call_pre";
      if (judgement.verdict == Verdict::failed && partner && order) gone_.insert(*partner);
    }
    std::erase_if(gone_, [&called](Name name) { return called.contains(name); });
  }

  // Whose calls are the examples of an invariant, and which function should come with them.
  static std::pair<std::optional<Name>, std::optional<Name>> roles_of(const Judgement& judgement) {
    const std::vector<Param>& params = judgement.invariant->params;
    const auto api = [&params](std::size_t at) -> std::optional<Name> {
      if (at >= params.size() || params[at].type != ParamType::api) return std::nullopt;
      return params[at].api;
    };
    const std::string_view relation = judgement.relation ? judgement.relation->name() : "";
    if (relation == "FunctionCoverRelation") return {api(1), api(0)};
    if (relation == "FunctionLeadRelation" || relation == "APIContainRelation") {
      return {api(0), api(1)};
    }
    return {api(0) ? api(0) : api(1), std::nullopt};
  }

  [[nodiscard]] bool is_gone(const Thing& thing) const {
    return !thing.attribute && gone_.contains(thing.name);
  }

  // Whatever is not gone; then the fewest invariants, the latest, the name that sorts last.
  [[nodiscard]] bool weaker(const Entry& a, const Entry& b) const {
    const bool is = is_gone(a.first) && !a.second.empty();
    const bool other_is = is_gone(b.first) && !b.second.empty();
    if (is != other_is) return other_is;
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
  std::set<Name> gone_;
  std::map<Thing, std::set<std::size_t>> named_;
};

}  // namespace

std::vector<Culprit> culprits(const CheckResult& result, const Values& values) {
  return Grouping(result, values).run();
}

}  // namespace ttrace::invariant
