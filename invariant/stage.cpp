// SPDX-License-Identifier: Apache-2.0
#include "invariant/stage.hpp"

#include <algorithm>

namespace ttrace::invariant {
namespace {

Value stage_of(const Situation& situation, Name column) {
  for (const Field& field : situation.fields) {
    if (field.column == column) return field.value;
  }
  return {};
}

bool contains(std::span<const Value> values, Value value) {
  return std::ranges::any_of(values, [value](Value other) { return identical(value, other); });
}

void add(std::vector<Value>& values, Value value) {
  if (value.present() && !contains(values, value)) values.push_back(value);
}

}  // namespace

Stages::Stages(World& world) : column_(world.name("meta_vars.stage")) {
  for (SituationId id = 0; id < world.situations.size(); ++id) {
    add(all_, stage_of(world.situations[id], column_));
  }
}

void Stages::restrict(World& world, Condition& condition,
                      std::span<const CountedExample> positive) const {
  std::vector<Value> seen;
  bool everywhere = false;  // also where no stage was recorded
  for (const CountedExample& entry : positive) {
    const Value stage = stage_of(world.situations[entry.example.first], column_);
    everywhere = everywhere || !stage.present();
    add(seen, stage);
  }
  if (everywhere || seen.size() == all_.size()) return;
  Clause clause;
  clause.type = ClauseType::constant;
  clause.property = column_;
  clause.dtype = world.name("str");
  if (condition.inverted) {
    for (const Value stage : all_) {
      if (!contains(seen, stage)) clause.values.push_back(stage);
    }
    condition.any.push_back({clause});
    return;
  }
  clause.values = seen;
  for (Conjunction& conjunction : condition.any) {
    const bool said = std::ranges::any_of(conjunction, [&](const Clause& other) {
      return other.type == ClauseType::constant && other.property == column_;
    });
    if (!said) conjunction.push_back(clause);
  }
}

}  // namespace ttrace::invariant
