// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm. The norm that the run reports is that of all gradients, each element
// once, on every rank; and clipping multiplies all gradients of all ranks by one factor. Norms of
// gradients are in the records' statistics, so nothing needs to be read.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/copies.hpp"
#include "invariant/builtin/values.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

constexpr const char* kNormAdvice =
    "whose gradients are counted, and over which ranks are the squares added up: pieces of one "
    "tensor on all of them, copies once?";

bool is_norm(const Key& key) {
  return key.phase == Phase::grad && key.module == kRootModule && key.slot == "norm";
}

bool has_statistics(const Record* record) {
  return record != nullptr && record->kind != RecordKind::hash &&
         record->statistics.nan_count == 0 && record->statistics.inf_count == 0;
}

struct RankClipping {
  std::vector<double> norms;  // as the run reports them
  bool clipped = false;       // some gradient was recorded on both sides of the clipping
  bool gradients = false;
  double least = std::numeric_limits<double>::infinity();  // factors
  double largest = 0;
  std::string least_name, largest_name;
  double epsilon = 0;  // of the coarsest type
  double own_squares = 0;
};

RankClipping read_rank(const SegmentReader& segment, const ParameterSteps& parameters) {
  RankClipping rank;
  for (const Record& record : segment.records()) {
    if (is_norm(record.key) && has_statistics(&record)) {
      rank.norms.push_back(record.statistics.max);  // of one element
    }
  }
  for (const auto& [name, step] : parameters) {
    if (step.reduced != nullptr || step.clipped != nullptr) rank.gradients = true;
    if (step.clipped != nullptr) rank.clipped = true;
    if (!has_statistics(step.reduced)) continue;
    rank.own_squares += step.reduced->statistics.sum_squares;
    rank.epsilon = std::max(rank.epsilon, epsilon(step.reduced->dtype));
    if (!has_statistics(step.clipped)) continue;
    const double before = step.reduced->statistics.sum_squares;
    if (!(before > 0) || step.reduced->shape != step.clipped->shape) continue;
    const double factor = std::sqrt(step.clipped->statistics.sum_squares / before);
    if (factor < rank.least) rank.least_name = name;
    if (factor > rank.largest) rank.largest_name = name;
    rank.least = std::min(rank.least, factor);
    rank.largest = std::max(rank.largest, factor);
  }
  return rank;
}

using Ranks = std::map<std::int32_t, RankClipping>;

struct WholeNorm {
  double squares = 0;
  double largest = 0;  // |element|, for clipping by the infinity norm
  std::uint64_t tensors = 0;
  std::string unknown;
};

class GlobalNorm final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    Ranks ranks;
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment != nullptr) {
        ranks[rank] = read_rank(*segment, evidence.parameters(rank, iteration));
      }
    }
    const bool any = std::any_of(ranks.begin(), ranks.end(), [](const auto& entry) {
      return entry.second.clipped || !entry.second.norms.empty();
    });
    if (!any) {
      ++outcome.unchecked["no norm was recorded and no gradient clipped"];
      return;
    }
    look_for_the_only_ones(ranks, iteration, outcome);
    look_at_factors(ranks, iteration, outcome);
    look_at_norms(evidence, ranks, iteration, outcome);
  }

 private:
  static Violation about(std::int64_t iteration, std::vector<std::int32_t> odd, std::string what,
                         std::string advice, Certainty certainty = Certainty::certain) {
    Violation violation;
    violation.certainty = certainty;
    violation.iteration = iteration;
    violation.ranks = std::move(odd);
    violation.what = std::move(what);
    violation.advice = std::move(advice);
    return violation;
  }

  static void look_for_the_only_ones(const Ranks& ranks, std::int64_t iteration, Outcome& outcome) {
    std::vector<std::int32_t> clip;
    std::vector<std::int32_t> leave;
    bool scales = false;
    for (const auto& [rank, clipping] : ranks) {
      if (!clipping.gradients) continue;
      (clipping.clipped ? clip : leave).push_back(rank);
      scales = scales || (clipping.clipped && clipping.least < 1 - 8 * clipping.epsilon);
    }
    if (clip.empty()) return;
    outcome.compared["ranks that clip"] += clip.size();
    if (leave.empty()) return;
    const std::vector<std::int32_t> odd = leave.size() < clip.size() ? leave : clip;
    outcome.report(
        about(iteration, odd,
              "gradients are clipped on " + ranks_text(clip) + " only, not on " + ranks_text(leave),
              "is the clipping inside a condition on the rank?",
              scales ? Certainty::certain : Certainty::possible));
  }

  static void look_at_factors(const Ranks& ranks, std::int64_t iteration, Outcome& outcome) {
    std::map<std::int32_t, double> factors;
    double slack = 0;
    for (const auto& [rank, clipping] : ranks) {
      if (clipping.norms.size() > 1) {
        ++outcome.unchecked["a rank clips several times, which factor is whose is not known"];
        return;
      }
      // Clipping by value reports no norm and has no factor.
      if (clipping.largest == 0 || clipping.norms.empty()) continue;
      ++outcome.compared["clip factors of ranks"];
      slack = std::max(slack, 1e-6 + 4 * clipping.epsilon);
      factors[rank] = clipping.largest;
      if (clipping.largest - clipping.least <= slack * clipping.largest) continue;
      outcome.report(about(
          iteration, {rank},
          "rank " + std::to_string(rank) +
              " scales gradients by different factors when it clips: " + printed(clipping.least) +
              " for " + clipping.least_name + ", " + printed(clipping.largest) + " for " +
              clipping.largest_name,
          "are all parameters passed to the clipping, and is the norm one number for all?"));
      return;
    }
    report_spread(factors, slack, "scale gradients by other factors when they clip", iteration,
                  "clipping must use the norm of all gradients, which is the same on all ranks",
                  outcome);
  }

  // Ranks that deviate from what most have.
  static bool report_spread(const std::map<std::int32_t, double>& values, double slack,
                            const std::string& what, std::int64_t iteration, const char* advice,
                            Outcome& outcome) {
    std::vector<std::pair<double, std::vector<std::int32_t>>> groups;
    for (const auto& [rank, value] : values) {
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        return std::fabs(group.first - value) <= slack * std::fabs(group.first);
      });
      if (same == groups.end()) {
        groups.push_back({value, {rank}});
      } else {
        same->second.push_back(rank);
      }
    }
    if (groups.size() < 2) return false;
    std::stable_sort(groups.begin(), groups.end(), [](const auto& left, const auto& right) {
      return left.second.size() > right.second.size();
    });
    std::string text = "ranks " + what + ": ";
    std::vector<std::int32_t> odd;
    const bool majority = groups[0].second.size() > groups[1].second.size();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (i < 4) {
        text +=
            (i == 0 ? "" : ", ") + printed(groups[i].first) + " on " + ranks_text(groups[i].second);
      }
      if (i > 0 || !majority) {
        odd.insert(odd.end(), groups[i].second.begin(), groups[i].second.end());
      }
    }
    std::sort(odd.begin(), odd.end());
    outcome.report(about(iteration, odd, text, advice));
    return true;
  }

  WholeNorm whole_norm(const Evidence& evidence, std::int64_t iteration, bool only_clipped) const {
    WholeNorm norm;
    std::set<std::string> clipped;
    const ShardGroups& groups = evidence.parameter_shards(iteration);
    for (const auto& [key, shards] : groups) {
      if (key.phase == Phase::grad && key.slot == "clipped") clipped.insert(key.module);
    }
    for (const auto& [key, shards] : groups) {
      if (key.phase != Phase::grad || key.slot != "reduced" || key.call > 0) continue;
      if (only_clipped && clipped.count(key.module) == 0) continue;
      const Copies copies = evidence.copies().of(key, shards);
      if (!copies.unknown.empty()) norm.unknown = copies.unknown;
      for (const CopySet& addends : copies.addends) add_sum(addends, norm);
      if (!copies.addends.empty()) continue;
      for (const CopySet& set : copies.sets) {
        const Record* record = set.front().record;
        if (!has_statistics(record)) {
          norm.unknown = "gradients were kept as hashes, or are not finite";
          continue;
        }
        norm.squares += record->statistics.sum_squares;
        norm.largest = std::max(
            {norm.largest, std::fabs(record->statistics.min), std::fabs(record->statistics.max)});
        ++norm.tensors;
      }
    }
    return norm;
  }

  // What the ranks hold must still be added up.
  static void add_sum(const CopySet& addends, WholeNorm& norm) {
    std::vector<Part> parts;
    for (const Shard& shard : addends) {
      const auto part = whole(*shard.segment, shard.record);
      if (!part || (!parts.empty() && part->count != parts.front().count)) {
        norm.unknown = "addends of gradients were kept without bytes";
        return;
      }
      parts.push_back(*part);
    }
    ++norm.tensors;
    for_each_tile(parts, [&norm](const Tile& tile, std::uint64_t) {
      for (std::size_t i = 0; i < tile[0].size(); ++i) {
        double sum = 0;
        for (const std::vector<double>& addend : tile) sum += addend[i];
        norm.squares += sum * sum;
        norm.largest = std::max(norm.largest, std::fabs(sum));
      }
    });
  }

  void look_at_norms(const Evidence& evidence, const Ranks& ranks, std::int64_t iteration,
                     Outcome& outcome) const {
    std::map<std::int32_t, double> reported;
    double slack = 1e-4;  // norms are added up in the gradients' type, in an order of their own
    bool clipped = false;
    for (const auto& [rank, clipping] : ranks) {
      clipped = clipped || clipping.clipped;
      if (clipping.norms.size() != 1) continue;
      reported[rank] = clipping.norms.front();
      slack = std::max(slack, 4 * clipping.epsilon);
    }
    if (reported.empty()) {
      ++outcome.unchecked["no rank reports one norm"];
      return;
    }
    const bool spread = report_spread(reported, slack, "report different gradient norms", iteration,
                                      kNormAdvice, outcome);
    if (!evidence.complete(iteration)) {
      ++outcome.unchecked["ranks or records are missing, so the norm cannot be computed again"];
      return;
    }
    const WholeNorm norm = whole_norm(evidence, iteration, clipped);
    if (!norm.unknown.empty() || norm.tensors == 0) {
      ++outcome.unchecked["the norm cannot be computed again: " +
                          (norm.tensors == 0 ? "no gradient was recorded" : norm.unknown)];
      return;
    }
    outcome.compared["gradients in recomputed norms"] += norm.tensors;
    // Gradients of parameters that no optimizer holds may count: only the clipping sees them.
    const WholeNorm all = clipped ? whole_norm(evidence, iteration, false) : norm;
    const double least = std::min(norm.squares, all.squares);
    const double said = reported.begin()->second;
    const bool as_all = std::fabs(said - std::sqrt(all.squares)) <= slack * said;
    if (!spread && !(as_all && least > 0)) {
      report_wrong(ranks, reported, norm, slack, iteration, outcome);
    }
  }

  static void report_wrong(const Ranks& ranks, const std::map<std::int32_t, double>& reported,
                           const WholeNorm& norm, double slack, std::int64_t iteration,
                           Outcome& outcome) {
    const double right = std::sqrt(norm.squares);
    const double said = reported.begin()->second;
    const auto near = [slack](double one, double other) {
      return std::fabs(one - other) <= slack * std::fabs(other);
    };
    if (near(said, right) || near(said, norm.largest)) return;
    std::string what = "the run reports a gradient norm of " + printed(said) + ", that of all " +
                       counted(norm.tensors, "gradient") + " is " + printed(right) +
                       " (a factor of " + printed(said / right) + ")";
    double all = 0;
    for (const auto& [rank, clipping] : ranks) all += clipping.own_squares;
    for (const auto& [rank, clipping] : ranks) {
      if (!near(said, std::sqrt(clipping.own_squares))) continue;
      what += "; it is the norm of what rank " + std::to_string(rank) + " holds";
      break;
    }
    if (near(said, std::sqrt(all))) what += "; it counts copies once for each rank that has one";
    outcome.report(about(iteration, {}, what, kNormAdvice));
  }
};

}  // namespace

std::unique_ptr<Check> make_global_norm() { return std::make_unique<GlobalNorm>(); }

}  // namespace ttrace::builtin
