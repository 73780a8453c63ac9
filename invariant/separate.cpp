// SPDX-License-Identifier: Apache-2.0
#include "invariant/separate.hpp"

#include <map>

namespace ttrace::invariant {
namespace {

// The situation without the number of the step, and whether it had one.
struct Steady {
  SituationId id;
  bool early;
};

Steady steady_of(World& world, SituationId id) {
  if (const auto known = world.steady.find(id); known != world.steady.end()) {
    return {known->second, known->second != id};
  }
  Situation situation = world.situations[id];
  std::erase_if(situation.fields, [&world](const Field& field) {
    return world.columns.of(field.column) == Column::step;
  });
  const SituationId steady = world.situations.add(std::move(situation));
  world.steady[id] = steady;
  return {steady, steady != id};
}

struct Entry {
  const Tally* tally;
  std::uint64_t key;  // of the steady situation(s)
  Example steady;
  bool early;
};

struct Class {
  bool late_failed = false;  // in steps that are not among the first
  bool held = false, failed = false;
  std::uint64_t count = 0;
  Example steady;
};

using Classes = std::map<std::uint64_t, Class>;

Entry entry_of(World& world, const Tally& tally) {
  const Steady first = steady_of(world, tally.example.first);
  Entry entry{&tally, 0, tally.example, first.early};
  entry.steady.first = first.id;
  if (tally.example.pair) {
    const Steady second = steady_of(world, tally.example.second);
    entry.steady.second = second.id;
    entry.early = entry.early || second.early;
  }
  entry.key = std::uint64_t{entry.steady.first} << 32 | entry.steady.second;
  return entry;
}

// What is to be covered, of the steps as they are.
bool to_cover(const Entry& entry, const Classes& classes) {
  return entry.tally->failed == 0 && !(entry.early && classes.at(entry.key).late_failed);
}

}  // namespace

Separated separate(World& world, std::span<const Tally> tallies) {
  std::vector<Entry> entries;
  Classes classes;
  for (const Tally& tally : tallies) {
    const Entry entry = entry_of(world, tally);
    entries.push_back(entry);
    Class& same = classes[entry.key];
    same.steady = entry.steady;
    same.late_failed = same.late_failed || (!entry.early && tally.failed > 0);
    same.failed = same.failed || tally.failed > 0;
  }
  bool steps_matter = false;
  for (const Entry& entry : entries) {
    Class& same = classes[entry.key];
    if (!to_cover(entry, classes)) continue;
    same.held = true;
    same.count += entry.tally->held;
    steps_matter = steps_matter || same.failed;
  }
  Separated result;
  if (!steps_matter) {
    for (const auto& [key, same] : classes) {
      if (same.failed) {
        result.examples.negative.push_back({same.steady, 1});
      } else if (same.held) {
        result.examples.positive.push_back({same.steady, same.count});
        result.positive += same.count;
      }
    }
    return result;
  }
  for (const Entry& entry : entries) {
    const Tally& tally = *entry.tally;
    if (tally.failed > 0) result.examples.negative.push_back({tally.example, tally.failed});
    if (!to_cover(entry, classes)) continue;
    result.examples.positive.push_back({tally.example, tally.held});
    result.positive += tally.held;
  }
  return result;
}

}  // namespace ttrace::invariant
