// SPDX-License-Identifier: Apache-2.0
// Causes that the sums of a comparison show by themselves. A factor is worth a name only when it is
// a count that the run divides by: the size of a mesh axis, or how many micro-batches there are.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "diff/cause.hpp"
#include "diff/cause_lines.hpp"

namespace ttrace {
namespace {

constexpr double kLoosest = 1e-2;  // how far a factor may be from a count, whatever the limit
constexpr double kCertain = 1e-3;  // ... to be that count beyond doubt

constexpr std::uint64_t kFewValues = 16;  // that say nothing about a factor of theirs
constexpr std::size_t kMostFactors = 8;   // that are shown

// ---- counts that a run divides by ----

using Counts = std::multimap<std::uint64_t, std::string>;

void add_axes(const Trace& trace, const std::string& whose,
              std::map<std::string, std::uint64_t>& sizes) {
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [name, position] : rank.axes) sizes[whose + name] = position.size;
    for (const auto& [name, size] : rank.merged) sizes[whose + name] = size;
  }
}

// Of all, and of the rank that has most.
std::pair<std::uint64_t, std::uint64_t> microbatches(const ShardGroups& groups) {
  std::set<std::int32_t> all;
  std::map<std::int32_t, std::set<std::int32_t>> of_rank;
  for (const auto& [key, shards] : groups) {
    if (key.microbatch < 0) continue;
    all.insert(key.microbatch);
    for (const Shard& shard : shards) of_rank[shard.rank].insert(key.microbatch);
  }
  std::uint64_t most = 0;
  for (const auto& [rank, numbers] : of_rank) most = std::max<std::uint64_t>(most, numbers.size());
  return {all.size(), most};
}

Counts counts_of(const JudgeInput& input) {
  std::map<std::string, std::uint64_t> sizes;
  add_axes(*input.candidate->trace, "axis ", sizes);
  add_axes(*input.reference->trace, "the reference's axis ", sizes);
  Counts counts;
  for (const auto& [name, size] : sizes) {
    if (size < 2) continue;
    counts.emplace(size, "the size of " + name);
    for (const auto& [other, more] : sizes) {
      if (more > 1 && name < other)
        counts.emplace(size * more, "the sizes of " + name + " and " + other);
    }
  }
  const auto [all, of_rank] = microbatches(input.candidate->groups);
  if (all > 1) counts.emplace(all, "the number of micro-batches");
  if (of_rank > 1 && of_rank != all)
    counts.emplace(of_rank, "the number of a rank's micro-batches");
  return counts;
}

// All counts that `factor` may be.
std::vector<std::string> names_of(double factor, double tolerance, const Counts& counts) {
  std::vector<std::string> names;
  for (const auto& [count, name] : counts) {
    if (std::fabs(factor / static_cast<double>(count) - 1) <= tolerance) names.push_back(name);
  }
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", or ") + name;
  return text;
}

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", value);
  return text;
}

// ---- ranks ----

bool is_part(const ShardMetrics& shard) { return !shard.odd_copy && shard.count > 0; }

// The sums of the odd ranks' parts alone; of all when there are none.
Sums odd_sums(const PairMetrics& metrics, double limit) {
  const std::vector<std::int32_t> odd = odd_ranks(metrics, limit);
  if (odd.empty()) return metrics.total.sums;
  Sums sums;
  for (const ShardMetrics& shard : metrics.shards) {
    const bool listed = std::find(odd.begin(), odd.end(), shard.rank) != odd.end();
    if (is_part(shard) && listed) add(sums, shard.sums);
  }
  return sums;
}

// Squared errors and elements of the parts that share a rank, or a coordinate of an axis.
struct Part {
  double squares = 0;
  std::uint64_t count = 0;
};
using Parts = std::map<std::string, Part>;

// By rank first, then by each axis.
std::vector<Parts> parts_of(const Suspect& suspect) {
  std::map<std::int32_t, const Coordinates*> where;
  for (const PlacedShard& placed : suspect.pair->candidate->shards) {
    where[placed.shard.rank] = &placed.shard.where.get();
  }
  Parts by_rank;
  std::map<std::string, Parts> by_axis;
  for (const ShardMetrics& shard : suspect.metrics->shards) {
    if (!is_part(shard)) continue;
    const auto add_to = [&shard](Part& part) {
      part.squares += shard.sums.error_squares;
      part.count += shard.count;
    };
    add_to(by_rank["rank " + std::to_string(shard.rank) + "'s part carries "]);
    const auto found = where.find(shard.rank);
    if (found == where.end()) continue;
    for (const auto& [axis, position] : *found->second) {
      add_to(by_axis[axis]["the parts of the ranks with " + axis + " = " +
                           std::to_string(position.coord) + " carry "]);
    }
  }
  std::vector<Parts> all{std::move(by_rank)};
  for (auto& [axis, parts] : by_axis) all.push_back(std::move(parts));
  return all;
}

}  // namespace

std::optional<Cause> find_zeros(const Suspect& suspect) {
  const Sums& sums = suspect.metrics->total.sums;
  if (sums.candidate_squares == 0 && sums.reference_squares > 0) {
    return Cause{"the candidate is all zero",
                 std::to_string(suspect.metrics->total.count) + " elements", false};
  }
  if (sums.reference_squares == 0 && sums.candidate_squares > 0) {
    return Cause{"the reference is all zero",
                 std::to_string(suspect.metrics->total.count) + " elements", false};
  }
  std::string ranks;
  std::uint64_t zero = 0, parts = 0;
  for (const ShardMetrics& shard : suspect.metrics->shards) {
    if (!is_part(shard)) continue;
    ++parts;
    if (shard.sums.candidate_squares > 0 || shard.sums.reference_squares == 0) continue;
    ++zero;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(shard.rank);
  }
  if (zero == 0) return std::nullopt;
  return Cause{
      "the candidate is all zero on " + std::string(zero == 1 ? "rank " : "ranks ") + ranks,
      counted(zero, parts) + " parts; the reference's are not zero there", false};
}

std::optional<Cause> find_factor(const Suspect& suspect) {
  const double limit = suspect.limit;
  const Sums sums = odd_sums(*suspect.metrics, limit);
  const std::optional<double> factor = common_factor(sums, limit);
  if (!factor || *factor == 0 || !is_floating(suspect.pair->reference->dtype)) return std::nullopt;
  const double tolerance = std::min(std::max(limit, 1e-12), kLoosest);
  if (std::fabs(*factor - 1) <= tolerance) return std::nullopt;
  const std::string evidence = "measured factor " + digits(*factor);
  if (std::fabs(*factor + 1) <= tolerance) {
    return Cause{"the sign is wrong: the candidate is " + suspect.where + "the reference times -1",
                 evidence, tolerance > kCertain};
  }
  const bool larger = *factor > 1;
  const double count = larger ? *factor : 1 / *factor;
  const std::vector<std::string> names = names_of(count, tolerance, counts_of(*suspect.all));
  if (names.empty()) return std::nullopt;
  const std::string number = std::to_string(static_cast<std::uint64_t>(std::llround(count)));
  return Cause{"the candidate is " + suspect.where + "the reference " +
                   (larger ? "times " : "divided by ") + number + ", " + joined(names) +
                   (larger ? ": a sum for a mean, or added up twice"
                           : ": a mean for a sum, or divided twice"),
               evidence,
               names.size() > 1 ||
                   std::fabs(count / static_cast<double>(std::llround(count)) - 1) > kCertain};
}

std::optional<Cause> find_factors_of_ranks(const Suspect& suspect) {
  if (!is_floating(suspect.pair->reference->dtype)) return std::nullopt;
  std::map<std::string, std::string> ranks;  // by factor
  std::size_t parts = 0;
  double least = INFINITY, most = 0;
  for (const ShardMetrics& shard : suspect.metrics->shards) {
    if (!is_part(shard) || !(shard.sums.reference_squares > 0)) continue;
    const std::optional<double> factor = common_factor(shard.sums, suspect.limit);
    // A few elements, one in the end, are always the reference's times something.
    if (!factor || !(*factor > 0) || shard.count < kFewValues) return std::nullopt;
    ++parts;
    least = std::min(least, *factor);
    most = std::max(most, *factor);
    std::string& list = ranks[short_number(*factor)];
    list += (list.empty() ? "" : ", ") + std::to_string(shard.rank);
  }
  if (parts < 2 || most / least - 1 <= kLoosest) return std::nullopt;
  std::string text;
  std::size_t shown = 0;
  for (const auto& [factor, list] : ranks) {
    if (++shown > kMostFactors) continue;
    text += (text.empty() ? "" : ", ") + factor + " on rank" +
            (list.find(',') == std::string::npos ? " " : "s ") + list;
  }
  if (shown > kMostFactors) text += ", ...";
  return Cause{"scaled by a factor that differs between ranks: " + text,
               "each of " + std::to_string(parts) + " parts is the reference's times its factor",
               false};
}

std::optional<Cause> find_share(const Suspect& suspect) {
  for (const Parts& parts : parts_of(suspect)) {
    Part all;
    std::pair<std::string, Part> worst;
    for (const auto& [name, part] : parts) {
      all.squares += part.squares;
      all.count += part.count;
      if (part.squares > worst.second.squares) worst = {name, part};
    }
    const double share = all.squares > 0 ? worst.second.squares / all.squares : 0;
    const double size = static_cast<double>(worst.second.count) / static_cast<double>(all.count);
    if (parts.size() < 2 || share < kNearlyAll || size > 0.5) continue;
    return Cause{worst.first + percent(share) + " of the squared error",
                 percent(size) + " of the elements", false};
  }
  return std::nullopt;
}

std::optional<Cause> find_padding(const Suspect& suspect) {
  const Pair& pair = *suspect.pair;
  if (pair.key.phase != Phase::forward || pair.padded) return std::nullopt;
  const auto sequence = [](const Pair& of) {
    return of.reference->shards[0].shard.record->sequence;
  };
  for (const Pair& other : suspect.all->alignment->pairs) {
    const bool before = other.key.phase == Phase::forward &&
                        other.key.microbatch == pair.key.microbatch &&
                        sequence(other) < sequence(pair);
    if (!other.padded || !before) continue;
    return Cause{"the padding takes part in it: pad both runs alike, or mask what was added",
                 other.key.module + "/" + other.key.slot + ": " + other.note, true};
  }
  return std::nullopt;
}

}  // namespace ttrace
