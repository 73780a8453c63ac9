// SPDX-License-Identifier: Apache-2.0
// See seed.hpp. The ratio of a tensor is that of least squares, sum(r c) / sum(r r), over a sample.
#include "diff/seed.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "diff/stream.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kSample = 65536;  // elements of each part
constexpr double kNearFactor = 0.05;
const double kWindow = std::exp2(1.0 / 20);

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Sizes of mesh axes; an axis that both sides have with equal sizes explains nothing by itself.
std::map<std::string, double> axis_sizes(const Trace& trace, std::uint64_t turns) {
  std::map<std::string, double> sizes;
  if (turns > 1) sizes["turns"] = static_cast<double>(turns);
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [name, position] : rank.axes) {
      if (position.size > 1) sizes[name] = static_cast<double>(position.size);
    }
    for (const auto& [name, size] : rank.merged) sizes[name] = static_cast<double>(size);
  }
  return sizes;
}

struct Product {
  double value = 1;
  std::string text;
  std::size_t terms = 0;
};

// All products of some of the axes, simplest first.
std::vector<Product> products(const std::map<std::string, double>& sizes) {
  std::vector<Product> all{{}};
  for (const auto& [name, size] : sizes) {
    const std::size_t before = all.size();
    for (std::size_t i = 0; i < before; ++i) {
      all.push_back({all[i].value * size, all[i].text.empty() ? name : all[i].text + " * " + name,
                     all[i].terms + 1});
    }
    if (all.size() > 64) break;  // a mesh of more axes has no readable explanation
  }
  std::stable_sort(all.begin(), all.end(), [](const Product& one, const Product& other) {
    return one.terms < other.terms;
  });
  return all;
}

std::string ratio_text(const Product& above, const Product& below) {
  const std::string top = above.text.empty() ? "1" : above.text;
  if (below.text.empty()) return top;
  const bool several = below.terms > 1;
  return top + " / " + (several ? "(" : "") + below.text + (several ? ")" : "");
}

}  // namespace

bool carries_seed(const Key& key) {
  return key.phase == Phase::backward || (key.phase == Phase::grad && key.slot == "local");
}

double scale_for(const Key& key, const Seeds& seeds) {
  if (!carries_seed(key)) return 1;
  const auto seed = seeds.find(key.microbatch);
  if (seed == seeds.end()) return 1;
  const auto own = seed->second.own.find(key);
  return 1 / (own == seed->second.own.end() ? seed->second.factor : own->second);
}

double most_frequent(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  std::size_t best = 0, best_count = 0;
  for (std::size_t first = 0, last = 0; first < ratios.size(); ++first) {
    while (last < ratios.size() && ratios[last] <= ratios[first] * kWindow) ++last;
    if (last - first <= best_count) continue;
    best = first;
    best_count = last - first;
  }
  return ratios.empty() ? 1 : ratios[best + (best_count - 1) / 2];
}

std::map<double, std::string> explainable_factors(const Trace& reference, const Trace& candidate,
                                                  std::uint64_t reference_turns,
                                                  std::uint64_t candidate_turns) {
  std::map<double, std::string> factors{{1.0, ""}};
  const std::vector<Product> own = products(axis_sizes(candidate, candidate_turns));
  std::vector<Product> theirs = products(axis_sizes(reference, reference_turns));
  for (Product& product : theirs) {
    if (!product.text.empty()) product.text = "reference's " + product.text;
  }
  // Simple explanations come first and stay.
  for (const Product& below : theirs) {
    for (const Product& above : own) {
      factors.emplace(above.value / below.value, ratio_text(above, below));
    }
  }
  for (const Product& above : theirs) {
    for (const Product& below : own) {
      factors.emplace(above.value / below.value, ratio_text(above, below));
    }
  }
  return factors;
}

Seed explain_seed(double measured, double tolerance, const std::map<double, std::string>& factors) {
  Seed seed;
  seed.measured = measured;
  double nearest = 1;
  for (const auto& [factor, meaning] : factors) {
    if (std::fabs(std::log(measured / factor)) < std::fabs(std::log(measured / nearest))) {
      nearest = factor;
    }
  }
  seed.explained = std::fabs(measured / nearest - 1) <= tolerance;
  seed.factor = seed.explained ? nearest : measured;
  const auto meaning = factors.find(nearest);
  if (seed.explained && meaning != factors.end()) seed.meaning = meaning->second;
  return seed;
}

Seed seed_of(const std::vector<double>& ratios, double tolerance,
             const std::map<double, std::string>& factors) {
  Seed seed = explain_seed(most_frequent(ratios), tolerance, factors);
  seed.tensors = ratios.size();
  for (const double ratio : ratios) {
    if (std::fabs(ratio / seed.measured - 1) <= 4 * tolerance) ++seed.agreeing;
  }
  if (seed.explained) return seed;
  // One tensor that has a plain factor to the last digits shows that the loss is right: where the
  // others depart from it is found later.
  for (const double ratio : ratios) {
    Seed exact = explain_seed(ratio, tolerance, factors);
    if (!exact.explained || std::fabs(std::log(exact.factor / seed.measured)) > kNearFactor) {
      continue;
    }
    exact.tensors = seed.tensors;
    exact.agreeing = seed.agreeing;
    return exact;
  }
  if (2 * seed.agreeing > seed.tensors) return seed;
  // Not one factor but many: that is no seed, it is an error that grows through the backward pass.
  const Seed nearest = explain_seed(seed.measured, kWindow - 1, factors);
  seed.factor = nearest.explained ? nearest.factor : 1;
  seed.meaning = nearest.meaning;
  seed.explained = true;
  return seed;
}

namespace {

// candidate / reference of one pair, by least squares over a sample; nullopt where it says nothing.
std::optional<double> ratio_of(const Pair& pair, const Backend& backend) {
  const PairMetrics metrics =
      measure(*pair.reference, *pair.candidate, backend, {.scale = 1, .sample = kSample});
  const Sums& sums = metrics.total.sums;
  if (metrics.evidence == Evidence::nothing || metrics.total.nonfinite_mismatch > 0) return {};
  double ratio = 1 + sums.error_products / sums.reference_squares;
  if (metrics.evidence == Evidence::norms) {
    ratio = std::sqrt(sums.candidate_squares / sums.reference_squares);
  }
  if (!std::isfinite(ratio) || ratio <= 0) return {};
  // A gradient that is rounding, or that has gone wrong, has no factor: it does not follow the
  // reference at all. cos^2 of the angle between the two.
  const double product = sums.error_products + sums.reference_squares;
  const double squares = sums.reference_squares * sums.candidate_squares;
  if (metrics.evidence == Evidence::read && product * product < squares / 2) return {};
  return ratio;
}

std::uint64_t turns_of(const LogicalTensor& tensor) {
  return tensor.shards.empty() ? 1 : position_on(tensor.shards.front().shard.where, kTurnAxis).size;
}

bool is_loss(const Pair& pair) {
  return pair.key.module == kRootModule || element_count(pair.reference->shape) == 1;
}

}  // namespace

Seeds find_seeds(const Alignment& alignment, const Trace& reference, const Trace& candidate,
                 const Limits& limits, const Backend& backend) {
  struct Ratios {
    std::vector<double> inner;
    std::map<Key, double> losses;
  };
  std::map<std::int32_t, Ratios> ratios;
  std::uint64_t own_turns = 1, their_turns = 1;
  for (const Pair& pair : alignment.pairs) {
    own_turns = std::max(own_turns, turns_of(*pair.candidate));
    their_turns = std::max(their_turns, turns_of(*pair.reference));
    if (pair.key.phase != Phase::backward || !is_floating(pair.reference->dtype)) continue;
    // Of the same storage the first speaks; partial sums would speak of their number.
    if (pair.same_as != kNoPair || !pair.candidate->layout.partial.empty()) continue;
    const std::optional<double> ratio = ratio_of(pair, backend);
    if (!ratio) continue;
    Ratios& of_microbatch = ratios[pair.key.microbatch];
    if (is_loss(pair)) {
      of_microbatch.losses[pair.key] = *ratio;
    } else {
      of_microbatch.inner.push_back(*ratio);
    }
  }
  const auto factors = explainable_factors(reference, candidate, their_turns, own_turns);
  Seeds seeds;
  for (auto& [microbatch, found] : ratios) {
    if (found.inner.empty()) {  // nothing but losses was captured
      for (const auto& [key, ratio] : found.losses) found.inner.push_back(ratio);
    }
    Seed& seed = seeds[microbatch];
    seed = seed_of(found.inner, limits.seed_tolerance, factors);
    for (const auto& [key, ratio] : found.losses) {
      const Seed own = explain_seed(ratio, limits.seed_tolerance, factors);
      if (own.explained) seed.own[key] = own.factor;
    }
  }
  return seeds;
}

std::vector<Finding> seed_findings(const Seeds& seeds, const Limits& limits,
                                   std::int64_t iteration) {
  std::vector<Finding> findings;
  for (const auto& [microbatch, seed] : seeds) {
    if (seed.explained) continue;
    Finding finding;
    finding.kind = FindingKind::gradient_seed;
    finding.key = {iteration, microbatch, Phase::backward, std::string(kRootModule), 0, "seed"};
    finding.message = "the gradients of all activations are the reference's times " +
                      number(seed.measured) + ", which no ratio of mesh sizes explains";
    finding.evidence = {{"measured", number(seed.measured)},
                        {"tolerance", number(limits.seed_tolerance)},
                        {"tensors", std::to_string(seed.agreeing) + " of " +
                                        std::to_string(seed.tensors) + " agree"}};
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
