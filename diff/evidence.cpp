// SPDX-License-Identifier: Apache-2.0
// What can be said about an error beyond its size. Facts only: a cause is left to the reader.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "diff/convert.hpp"
#include "diff/judge.hpp"
#include "diff/parts.hpp"
#include "diff/tiles.hpp"
#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

constexpr int kLargestTerm = 64;  // of a ratio that is worth a name

double relative_error(const ShardMetrics& shard) {
  const double norm = std::sqrt(shard.sums.reference_squares);
  const double error = std::sqrt(shard.sums.error_squares);
  return norm > 0 ? error / norm : error;
}

bool exceeds(const ShardMetrics& shard, double limit) {
  return shard.nonfinite_mismatch > 0 || !(relative_error(shard) <= limit);
}

std::string rank_list(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (const std::int32_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

// Those that hold the same bits of the same part as this rank, which is one of them.
std::vector<std::int32_t> ranks_alike(const LogicalTensor& tensor, std::int32_t rank) {
  std::set<std::int32_t> alike{rank};
  for (const PlacedShard& own : tensor.shards) {
    if (own.shard.rank != rank) continue;
    for (const PlacedShard& other : tensor.shards) {
      if (other.pieces == own.pieces && other.shard.record->hash == own.shard.record->hash) {
        alike.insert(other.shard.rank);
      }
    }
  }
  return {alike.begin(), alike.end()};
}

// The sums of the odd ranks' parts alone; of all when there are none.
Sums sums_of(const PairMetrics& metrics, const std::vector<std::int32_t>& ranks) {
  if (ranks.empty()) return metrics.total.sums;
  Sums sums;
  for (const ShardMetrics& shard : metrics.shards) {
    if (std::find(ranks.begin(), ranks.end(), shard.rank) != ranks.end()) add(sums, shard.sums);
  }
  return sums;
}

Box element_box(std::uint64_t flat, const Shape& shape) {
  Box box{Shape(shape.size(), 0), Shape(shape.size(), 1)};
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    box.start[dim] = flat % shape[dim];
    flat /= shape[dim];
  }
  return box;
}

std::string value_at(const LogicalTensor& tensor, std::uint64_t flat) {
  if (!tensor.layout.partial.empty()) return "(a sum of addends)";
  if (!readable(tensor)) return "?";
  std::vector<double> value;
  read_doubles(tensor, element_box(flat, tensor.shape), value);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value.at(0));
  return text;
}

std::string boxes_of(const LogicalTensor& tensor, std::int32_t rank) {
  constexpr std::size_t kShown = 2;
  std::string text;
  for (const PlacedShard& shard : tensor.shards) {
    if (shard.shard.rank != rank) continue;
    for (std::size_t i = 0; i < shard.pieces.size() && i < kShown; ++i) {
      text += (text.empty() ? "" : " ") + to_string(shard.pieces[i].global);
    }
    if (shard.pieces.size() > kShown) {
      text += " and " + std::to_string(shard.pieces.size() - kShown) + " more";
    }
  }
  return text;
}

void add_worst(const Pair& pair, const Metrics& total, Finding& finding) {
  const std::uint64_t at = total.worst != kNoIndex ? total.worst : total.first_unequal;
  if (at == kNoIndex) return;
  finding.evidence.emplace_back("worst element",
                                element_text(at, pair.reference->shape) + ": reference " +
                                    value_at(*pair.reference, at) + ", candidate " +
                                    value_at(*pair.candidate, at));
  finding.evidence.emplace_back(
      "elements", std::to_string(total.unequal) + " of " + std::to_string(total.count) + " differ");
}

}  // namespace

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 && value < 1e6 ? "%.0f" : "%.3g", value);
  return text;
}

std::optional<double> common_factor(const Sums& sums, double limit) {
  if (!(sums.reference_squares > 0)) return std::nullopt;
  if (sums.candidate_squares == 0) return 0.0;
  const double change = sums.error_products / sums.reference_squares;
  const double left = std::max(0.0, sums.error_squares - change * sums.error_products);
  const double residual = std::sqrt(left / sums.candidate_squares);
  // What is left must be rounding, or at least far below the factor's own effect.
  if (!(residual <= std::max(limit, 1e-3 * std::fabs(change)))) return std::nullopt;
  return 1 + change;
}

std::string factor_text(double factor, double limit) {
  if (factor == 0) return "0";
  for (int below = 1; below <= kLargestTerm; ++below) {
    const double above = std::round(factor * below);
    if (above == 0 || std::fabs(above) > kLargestTerm) continue;
    if (std::fabs(factor / (above / below) - 1) > std::max(limit, 1e-12)) continue;
    // A fine grid of ratios would explain anything.
    if (std::min(std::fabs(above), static_cast<double>(below)) > 4) break;
    std::string text = std::to_string(static_cast<int>(above));
    if (below > 1) text += "/" + std::to_string(below);
    const bool exact = std::fabs(factor / (above / below) - 1) <= 1e-12;
    return exact ? "exactly " + text : text + ", up to round-off";
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", factor);
  return text;
}

std::vector<std::int32_t> odd_ranks(const PairMetrics& metrics, double limit) {
  std::vector<std::int32_t> odd;
  std::size_t parts = 0;
  for (const ShardMetrics& shard : metrics.shards) {
    if (shard.odd_copy) continue;
    ++parts;
    if (exceeds(shard, limit)) odd.push_back(shard.rank);
  }
  return odd.size() < parts ? odd : std::vector<std::int32_t>{};
}

void add_copies(const LogicalTensor& candidate, const PairMetrics& metrics, double limit,
                Finding& finding) {
  constexpr std::size_t kShown = 8;
  if (std::none_of(metrics.shards.begin(), metrics.shards.end(),
                   [](const ShardMetrics& shard) { return shard.odd_copy; })) {
    return;
  }
  std::set<std::int32_t> all, off, told;
  std::size_t shown = 0;
  for (const ShardMetrics& shard : metrics.shards) {
    const std::vector<std::int32_t> alike = ranks_alike(candidate, shard.rank);
    all.insert(alike.begin(), alike.end());
    if (exceeds(shard, limit)) off.insert(alike.begin(), alike.end());
    if (!told.insert(alike.front()).second || ++shown > kShown) continue;
    finding.evidence.emplace_back(rank_list(alike), shard.unequal == 0
                                                        ? "equal to the reference"
                                                        : "relative error to the reference " +
                                                              short_number(relative_error(shard)));
  }
  if (off.empty() || off.size() == all.size()) return;
  finding.ranks.assign(off.begin(), off.end());
  finding.message += ": " + rank_list(finding.ranks) + (off.size() == 1 ? " is" : " are") +
                     " beyond the limit, the others are not";
}

void add_evidence(const Pair& pair, const PairMetrics& metrics, double limit, Finding& finding) {
  const Metrics& total = metrics.total;
  if (metrics.type != pair.reference->dtype || metrics.type != pair.candidate->dtype) {
    finding.evidence.emplace_back("types", std::string(name_of(pair.reference->dtype)) + " and " +
                                               std::string(name_of(pair.candidate->dtype)) +
                                               ", compared as " +
                                               std::string(name_of(metrics.type)));
  }
  if (metrics.evidence != Evidence::read) return;
  const std::vector<std::int32_t> odd = odd_ranks(metrics, limit);
  if (!odd.empty()) {
    finding.ranks = odd;
    for (std::size_t i = 0; i < odd.size() && i < 4; ++i) {
      finding.evidence.emplace_back("rank " + std::to_string(odd[i]) + " holds",
                                    boxes_of(*pair.candidate, odd[i]));
    }
  }
  if (total.nonfinite_mismatch > 0) {
    finding.evidence.emplace_back("reference", std::to_string(total.reference_nan) + " NaN, " +
                                                   std::to_string(total.reference_inf) + " Inf");
    finding.evidence.emplace_back("candidate", std::to_string(total.candidate_nan) + " NaN, " +
                                                   std::to_string(total.candidate_inf) + " Inf");
  } else if (is_floating(pair.reference->dtype)) {
    const Sums sums = sums_of(metrics, odd);
    const std::optional<double> factor = common_factor(sums, limit);
    if (factor && std::fabs(*factor - 1) > limit) {
      finding.message +=
          *factor == 0 ? "; all zero" : "; a factor of " + factor_text(*factor, limit);
      finding.evidence.emplace_back("factor", factor_text(*factor, limit));
    }
  }
  if (!odd.empty()) finding.message += ", on " + rank_list(odd) + " only";
  add_worst(pair, total, finding);
}

}  // namespace ttrace
