// SPDX-License-Identifier: Apache-2.0
// See pooling.hpp; statistics.hpp has the formula.
#include "diff/pooling.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "libttrace/inference_classes.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kFewestBlocks = 3;

struct Pool {
  std::vector<PooledTerm> terms;
  const Key* first = nullptr;
  bool found_already = false;
};

// One block with a large factor of its own is no factor of all: without the largest term the pool
// must exceed its limit still.
bool carried_by_all(std::vector<PooledTerm> terms, const StatisticLimits& limits) {
  terms.erase(std::max_element(terms.begin(), terms.end(),
                               [](const PooledTerm& one, const PooledTerm& other) {
                                 return std::fabs(one.z) < std::fabs(other.z);
                               }));
  return std::fabs(pooled(terms, limits)) > limits.pooled;
}

}  // namespace

std::vector<Finding> pooled_findings(const Alignment& alignment,
                                     const std::vector<Outcome>& outcomes,
                                     const StatisticLimits& limits) {
  std::map<std::tuple<Phase, std::int32_t, std::string, std::string>, Pool> pools;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Key& key = alignment.pairs[i].key;
    if (!outcomes[i].pooled || alignment.pairs[i].same_as != kNoPair) continue;
    Pool& pool = pools[{key.phase, key.microbatch, starred(key.module), key.slot}];
    if (pool.first == nullptr) pool.first = &key;
    pool.terms.push_back(*outcomes[i].pooled);
    pool.found_already = pool.found_already || outcomes[i].score > 1;
  }
  std::vector<Finding> findings;
  for (const auto& [name, pool] : pools) {
    if (pool.terms.size() < kFewestBlocks || pool.found_already) continue;
    const double z = pooled(pool.terms, limits);
    if (!(std::fabs(z) > limits.pooled) || !carried_by_all(pool.terms, limits)) continue;
    double effect = 0;
    for (const PooledTerm& term : pool.terms) effect += term.effect;
    effect /= static_cast<double>(pool.terms.size());
    Finding finding;
    finding.kind = FindingKind::over_limit;
    finding.key = *pool.first;
    finding.score = std::fabs(z) / limits.pooled;
    finding.message = "a factor of 1 " + std::string(effect < 0 ? "- " : "+ ") +
                      short_number(std::fabs(effect)) + " in all " +
                      std::to_string(pool.terms.size()) + " of " + std::get<2>(name) +
                      ", below the limit of each: pooled " + short_number(std::fabs(z)) +
                      ", its limit is " + short_number(limits.pooled);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
