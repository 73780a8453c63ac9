// SPDX-License-Identifier: Apache-2.0
// Tensors that only one side has. A lost layer is hundreds of tensors and one finding.
#include <algorithm>
#include <map>
#include <set>

#include "diff/align.hpp"
#include "diff/compare.hpp"

namespace ttrace {
namespace {

// What the lacking side does have, to tell how much of it is gone.
struct Presence {
  std::set<std::string> names;  // modules and parameters, with all that they lie in
  std::set<Phase> phases;
  std::set<std::int32_t> microbatches;

  explicit Presence(const ShardGroups& groups) {
    for (const auto& [key, shards] : groups) {
      phases.insert(key.phase);
      microbatches.insert(key.microbatch);
      std::string name = key.module;
      while (names.insert(name).second && name != kRootModule) name = parent_of(name);
    }
  }

  // The outermost module around `name` of which nothing is there; "" when there is some of `name`.
  [[nodiscard]] std::string outermost_absent(const std::string& name) const {
    std::string outermost;
    for (std::string at = name; names.count(at) == 0; at = parent_of(at)) {
      outermost = at;
      if (at == kRootModule) break;
    }
    return outermost == kRootModule ? "" : outermost;
  }
};

enum class Extent : std::uint8_t { microbatch, phase, module, tensor };

struct Group {
  Extent extent;
  std::string name;  // what the extent's members share
  friend auto operator<=>(const Group&, const Group&) = default;
};

Group group_of(const Key& key, const Presence& presence) {
  const std::string absent = presence.outermost_absent(key.module);
  if (!absent.empty()) return {Extent::module, absent};
  if (presence.microbatches.count(key.microbatch) == 0) {
    return {Extent::microbatch, std::to_string(key.microbatch)};
  }
  if (presence.phases.count(key.phase) == 0) {
    return {Extent::phase, std::string(name_of(key.phase))};
  }
  Key any = key;  // calls and micro-batches of one tensor are one finding
  any.microbatch = -1;
  any.call = 0;
  return {Extent::tensor, to_string(any)};
}

std::size_t modules_in(const std::string& name, const std::vector<const Key*>& keys,
                       const Trace& trace) {
  std::set<std::string> modules;
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [module, info] : rank.modules) {
      if (lies_in(module, name) && module != name) modules.insert(module);
    }
  }
  if (!modules.empty()) return modules.size();
  for (const Key* key : keys) {
    const std::string module = module_of(*key);
    if (lies_in(module, name) && module != name) modules.insert(module);
  }
  return modules.size();
}

std::string count_text(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string describe(const Group& group, const std::vector<const Key*>& keys,
                     const OneSided& one_sided) {
  const std::string where =
      one_sided.kind == FindingKind::missing ? "in the reference only" : "in the candidate only";
  const std::string tensors = count_text(keys.size(), "tensor");
  switch (group.extent) {
    case Extent::module: {
      const std::size_t inner = modules_in(group.name, keys, *one_sided.owner);
      return group.name + (inner > 0 ? " and " + count_text(inner, "module") + " in it" : "") +
             " " + (inner > 0 ? "are " : "is ") + where + " (" + tensors + ")";
    }
    case Extent::microbatch:
      return "micro-batch " + group.name + " is " + where + " (" + tensors + ")";
    case Extent::phase:
      return "phase " + group.name + " is " + where + " (" + tensors + ")";
    case Extent::tensor:
      break;
  }
  if (keys.size() == 1) return to_string(*keys[0]) + " is " + where;
  return to_string(*keys[0]) + " is " + where + ", in " + count_text(keys.size(), "call") +
         " or micro-batches";
}

}  // namespace

std::string reason_in_events(const Trace& trace, const Key& key) {
  for (const RankInfo& rank : trace.ranks()) {
    for (const Event& event : rank.events) {
      const bool whole_phase = event.where == name_of(key.phase);
      if (!whole_phase && event.where.find(key.module) == std::string::npos) continue;
      return event.what + ": " + event.why;
    }
  }
  return "";
}

std::vector<Finding> collapse(const OneSided& one_sided, const Flow& flow) {
  const Presence presence(*one_sided.other);
  std::map<Group, std::vector<const Key*>> groups;
  for (const Key& key : one_sided.keys) groups[group_of(key, presence)].push_back(&key);

  if (groups.empty()) return {};
  const auto why = circumstances(*one_sided.lacking);
  std::vector<Finding> findings;
  for (auto& [group, keys] : groups) {
    const auto earlier = [&flow](const Key* one, const Key* other) {
      const Place left = flow.place(*one);
      const Place right = flow.place(*other);
      return left != right ? left < right : *one < *other;
    };
    std::sort(keys.begin(), keys.end(), earlier);
    Finding finding;
    finding.kind = one_sided.kind;
    finding.key = *keys.front();
    if (group.extent == Extent::module) finding.key.module = group.name;
    finding.message = describe(group, keys, one_sided);
    finding.evidence = {{"tensors", std::to_string(keys.size())},
                        {"first", to_string(*keys.front())}};
    const std::string reason = reason_in_events(*one_sided.lacking, finding.key);
    if (!reason.empty()) finding.evidence.emplace_back("reason", reason);
    finding.evidence.insert(finding.evidence.end(), why.begin(), why.end());
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
