// SPDX-License-Identifier: Apache-2.0
// See left_out.hpp.
#include "invariant/builtin/collective/left_out.hpp"

#include <algorithm>
#include <set>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "invariant/builtin/pipeline_stages.hpp"

namespace ttrace::builtin {
namespace {

// nullptr: not recorded. Later ones may differ because of the mistake.
const Record* at_the_start(const Evidence& evidence, std::int32_t rank,
                           const std::string& parameter) {
  const ParameterSteps& steps = evidence.parameters(rank, evidence.iterations().front());
  const auto found = steps.find(parameter);
  return found == steps.end() ? nullptr : found->second.value;
}

bool same_at_the_start(const Evidence& evidence, std::int32_t left, std::int32_t right,
                       const std::string& parameter) {
  const Record* one = at_the_start(evidence, left, parameter);
  const Record* other = at_the_start(evidence, right, parameter);
  return tells(one) && tells(other) && one->hash == other->hash && one->bytes == other->bytes;
}

// A gradient of its own, as far as this rank was recorded.
bool has_unsummed(const Evidence& evidence, GradientFlow& flow, std::int32_t rank,
                  std::int64_t iteration, const Key& key) {
  const bool recorded = evidence.trace().segment(rank, iteration) != nullptr;
  const bool whole = evidence.cut_short(rank, iteration).empty() && !evidence.rank(rank)->degraded;
  if (!recorded || !whole) return false;
  const ParameterSteps& steps = evidence.parameters(rank, iteration);
  const auto step = steps.find(key.module);
  if (step == steps.end() || !tells(step->second.reduced)) return false;
  const std::vector<Became>& sums = flow.of(evidence, rank, iteration);
  return std::none_of(sums.begin(), sums.end(),
                      [&](const Became& became) { return became.gradient->key == key; });
}

std::set<std::string> parameters_of(const Evidence& evidence, std::int32_t rank) {
  std::set<std::string> names;
  if (const RankInfo* info = evidence.rank(rank)) {
    for (const auto& [name, parameter] : info->parameters) names.insert(name);
  }
  return names;
}

}  // namespace

std::optional<LeftOut> left_out_of(const Evidence& evidence, GradientFlow& flow, const Joint& joint,
                                   const std::vector<std::int32_t>& others) {
  for (const Call& call : joint.calls) {
    for (const Became& became : flow.of(evidence, call.rank, call.iteration)) {
      if (became.row != call.row) continue;
      const Key& key = became.gradient->key;
      LeftOut found{key.module, {}};
      for (const std::int32_t rank : others) {
        if (evidence.stages().apart(call.rank, rank)) continue;
        if (!same_at_the_start(evidence, call.rank, rank, key.module)) continue;
        if (has_unsummed(evidence, flow, rank, call.iteration, key)) found.ranks.push_back(rank);
      }
      if (!found.ranks.empty()) return found;
    }
  }
  return std::nullopt;
}

std::optional<bool> hold_other_parameters(const Evidence& evidence,
                                          const std::vector<std::int32_t>& members,
                                          const std::vector<std::int32_t>& others) {
  std::set<std::set<std::string>> held;
  for (const std::int32_t rank : members) held.insert(parameters_of(evidence, rank));
  if (held.count({}) != 0) return std::nullopt;
  return std::none_of(others.begin(), others.end(), [&](std::int32_t rank) {
    const std::set<std::string> names = parameters_of(evidence, rank);
    return names.empty() || held.count(names) != 0;
  });
}

}  // namespace ttrace::builtin
