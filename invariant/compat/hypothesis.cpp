// SPDX-License-Identifier: Apache-2.0
// See hypothesis.hpp.
#include "invariant/compat/hypothesis.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ttrace::invariant::compat {
namespace {

std::uint64_t key_of(const Example& example) {
  return std::uint64_t{example.first} << 32 | example.second;
}

auto names_of(const Param& param) {
  return std::tuple(param.type, param.api, param.variable, param.variable_type, param.attribute,
                    param.name, param.value_type, param.is_input);
}

// Also when neither is set.
bool same_value(const Values& values, Value a, Value b) {
  return (!a.present() && !b.present()) || values.equal(a, b);
}

void append(Examples& to, const Examples& from) {
  for (const auto side : {&Examples::positive, &Examples::negative}) {
    std::unordered_map<std::uint64_t, std::size_t> known;
    for (std::size_t i = 0; i < (to.*side).size(); ++i) {
      known.emplace(key_of((to.*side)[i].example), i);
    }
    for (const CountedExample& entry : from.*side) {
      const auto [place, added] = known.try_emplace(key_of(entry.example), (to.*side).size());
      if (added) {
        (to.*side).push_back(entry);
      } else {
        (to.*side)[place->second].count += entry.count;
      }
    }
  }
}

}  // namespace

void Gatherer::skip(std::span<const std::string_view> parts) {
  skip_.assign(parts.begin(), parts.end());
  skipped_.clear();
}

bool Gatherer::skipped(Name column) {
  if (column >= skipped_.size()) skipped_.resize(column + 1);
  Known& known = skipped_[column];
  if (known == Known::no_answer) {
    const std::string_view text = values_.text(column);
    const bool yes = std::ranges::any_of(
        skip_, [text](std::string_view part) { return text.find(part) != std::string_view::npos; });
    known = yes ? Known::yes : Known::no;
  }
  return known == Known::yes;
}

void Gatherer::Key::mix(std::uint64_t part) {
  low = (low ^ part) * 0x9e3779b97f4a7c15u;
  low ^= low >> 32;
  high = (high + part) * 0xc2b2ae3d27d4eb4fu;
  high ^= high >> 29;
}

// Equal keys have equal rows in the table of the search.
Gatherer::Key Gatherer::key_of_pair(const Example& example) {
  constexpr std::uint64_t kDiffer = 1u << 8;
  const Situation& first = situations_[example.first];
  const std::vector<Field>& others = situations_[example.second].fields;
  Key key;
  std::size_t at = 0;  // in others: both have the same order, mostly
  for (const Field& field : first.fields) {
    if (at >= others.size() || others[at].column != field.column) {
      const auto found = std::ranges::find(others, field.column, &Field::column);
      if (found == others.end()) continue;
      at = static_cast<std::size_t>(found - others.begin());
    }
    const Value other = others[at++].value;
    if (skipped(field.column)) continue;
    const auto kind = static_cast<std::uint64_t>(field.value.kind);
    const bool equal = identical(field.value, other) || values_.equal(field.value, other);
    key.mix(field.column);
    key.mix(equal ? kind : kind | kDiffer);
    if (equal) key.mix(field.value.bits);
  }
  for (const Active& active : first.managers) {
    key.mix(active.manager);
    key.mix(active.arguments.bits);
  }
  return key;
}

std::uint32_t& Gatherer::place_of(Side& side, const Example& example, bool& added) {
  if (example.pair) {
    const auto [entry, fresh] = side.of_pairs.try_emplace(key_of_pair(example), 0u);
    added = fresh;
    return entry->second;
  }
  if (side.places.size() <= example.first) {
    const std::size_t size = std::max<std::size_t>(2 * side.places.size(), example.first + 1);
    side.places.resize(size);
    side.rounds.resize(size);
  }
  added = std::exchange(side.rounds[example.first], round_) != round_;
  return side.places[example.first];
}

void Gatherer::add(const Example& example, bool holds, std::uint64_t count) {
  Side& side = holds ? positive_ : negative_;
  side.total += count;
  bool added = false;
  std::uint32_t& place = place_of(side, example, added);
  if (added) {
    place = static_cast<std::uint32_t>(side.examples.size());
    side.examples.push_back({example, 0});
  }
  side.examples[place].count += count;
}

void Gatherer::finish(Hypothesis& hypothesis) {
  hypothesis.examples = {positive_.examples, negative_.examples};
  hypothesis.positive = positive_.total;
  hypothesis.negative = negative_.total;
  for (Side* side : {&positive_, &negative_}) {
    side->examples.clear();
    side->of_pairs.clear();
    side->total = 0;
  }
  ++round_;
}

void append(const Values& values, Hypothesis& to, const Hypothesis& from) {
  append(to.examples, from.examples);
  to.positive += from.positive;
  to.negative += from.negative;
  to.condition.reset();
  for (const Value stage : from.stages) {
    const auto same = [&](Value known) { return values.equal(known, stage); };
    if (std::ranges::none_of(to.stages, same)) to.stages.push_back(stage);
  }
  to.traces.insert(to.traces.end(), from.traces.begin(), from.traces.end());
}

void Merged::add(Hypothesis&& hypothesis) {
  const std::uint64_t key = hash(values_, hypothesis.params);
  const auto [begin, end] = places_.equal_range(key);
  for (auto entry = begin; entry != end; ++entry) {
    Hypothesis& known = all[entry->second];
    if (same(values_, known.params, hypothesis.params)) return append(values_, known, hypothesis);
  }
  places_.emplace(key, all.size());
  all.push_back(std::move(hypothesis));
}

Param api_param(Name function) {
  Param out;
  out.type = ParamType::api;
  out.api = function;
  return out;
}

Param variable_param(Name type, Name attribute) {
  Param out;
  out.type = ParamType::variable_type;
  out.variable_type = type;
  out.attribute = attribute;
  return out;
}

bool same(const Values& values, const std::vector<Param>& a, const std::vector<Param>& b) {
  return std::ranges::equal(a, b, [&](const Param& x, const Param& y) {
    return names_of(x) == names_of(y) && same_value(values, x.exception, y.exception) &&
           same_value(values, x.arguments, y.arguments) && same_value(values, x.before, y.before) &&
           same_value(values, x.after, y.after) && same_value(values, x.constant, y.constant) &&
           same_value(values, x.index, y.index) && same_value(values, x.path, y.path);
  });
}

std::uint64_t hash(const Values& values, const std::vector<Param>& params) {
  std::uint64_t out = params.size();
  const auto mix = [&out](std::uint64_t part) {
    out = (out ^ part) * 0x9e3779b97f4a7c15u;
    out ^= out >> 32;
  };
  for (const Param& param : params) {
    for (const Name name : {param.api, param.variable, param.variable_type, param.attribute,
                            param.name, param.value_type}) {
      mix(name);
    }
    for (const Value value :
         {param.arguments, param.before, param.after, param.constant, param.index, param.path}) {
      mix(value.present() ? values.hash(value) : 0);
    }
  }
  return out;
}

}  // namespace ttrace::invariant::compat
