// SPDX-License-Identifier: Apache-2.0
// See judge.hpp.
#include <algorithm>
#include <cmath>

#include "diff/judging.hpp"
#include "diff/losses.hpp"
#include "diff/parts.hpp"
#include "diff/sums.hpp"

namespace ttrace {

double score_of(double error, double limit) {
  if (error == 0) return 0;
  if (!(limit > 0) || std::isnan(error)) return kHugeScore;
  return std::min(error / limit, kHugeScore);
}

Judge::Judge(const JudgeInput& input)
    : alignment_(*input.alignment),
      limits_(*input.limits),
      measured_(*input.measured),
      reference_(*input.reference),
      candidate_(*input.candidate),
      seeds_(*input.seeds),
      backend_(*input.backend),
      flow_(*input.flow),
      noise_(input.noise),
      floors_(reference_, alignment_, limits_, measured_),
      attention_(reference_, *input.flow),
      outcomes_(alignment_.pairs.size()) {
  for (std::size_t i = 0; i < alignment_.pairs.size(); ++i) index_[alignment_.pairs[i].key] = i;
}

std::vector<Outcome> Judge::run() {
  prepare_noise();
  // Reduced gradients first: what is made of them is judged by how their limits came out.
  for (const Turn turn : {Turn::first, Turn::of_gradients, Turn::norms}) {
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      if (turn_of(alignment_.pairs[i].key) == turn) judge_pair(i);
    }
  }
  accept_completed_sums(alignment_, reference_, flow_, outcomes_);
  for (std::size_t i = 0; i < outcomes_.size(); ++i) follow_alias(i);
  return std::move(outcomes_);
}

Judge::Turn Judge::turn_of(const Key& key) {
  if (key.phase != Phase::grad && key.phase != Phase::step) return Turn::first;
  if (key.module == kRootModule) return Turn::norms;
  const bool first = key.phase == Phase::grad && (key.slot == "reduced" || key.slot == "local");
  return first ? Turn::first : Turn::of_gradients;
}

void Judge::judge_pair(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  if (pair.same_as != kNoPair || judge_split_loss(i) || judge_sum(i)) return;
  compare_flags(i);
  judge_measured(i);
  report_problems(i);
}

void Judge::judge_measured(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  const PairMetrics& metrics = measured_[i];
  Outcome& outcome = outcomes_[i];
  switch (metrics.evidence) {
    case Evidence::nothing:
      add(i, FindingKind::not_compared, 1, "only hashes were kept, and they differ");
      return;
    case Evidence::norms:
      judge_norms(i);
      return;
    case Evidence::hash:
    case Evidence::read:
      break;
  }
  // Elements that no shard holds are reported; what is there is judged all the same.
  outcome.compared = metrics.total.count == element_count(pair.reference->shape) &&
                     known_kind(*pair.reference) && known_kind(*pair.candidate);
  outcome.equal = metrics.total.unequal == 0;
  judge_values(i);
}

// Where ranks have the losses of their parts of the data, these combined. False, and nothing
// done, when this is no such loss or is not right in that way.
bool Judge::judge_split_loss(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  if (!has_problem(*pair.candidate, FindingKind::replica_conflict) &&
      !has_problem(*pair.reference, FindingKind::replica_conflict)) {
    return false;
  }
  const std::optional<CombinedLoss> loss = combine_loss(pair, reference_, candidate_);
  if (!loss) return false;
  const double norm = std::fabs(loss->reference);
  const double error = std::fabs(loss->candidate - loss->reference);
  if (!(error <= plain_limit(i) * norm)) return false;
  outcomes_[i].compared = true;
  settle(i, error, plain_limit(i) * norm, norm);
  return true;
}

// Where the ranks' copies differ because each is an addend, and their sum is right. Whether
// somebody adds them up is for accept_completed_sums to say; of reduced gradients, which ought to
// be sums by then, it is only noted.
bool Judge::judge_sum(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  const Phase phase = pair.key.phase;
  const bool inner = phase == Phase::forward || phase == Phase::recompute || carries_seed(pair.key);
  const bool reduced = phase == Phase::grad && !inner;
  if (!(inner || reduced)) return false;
  std::optional<LogicalTensor> theirs = as_sum(*pair.reference);
  std::optional<LogicalTensor> sum = as_sum(*pair.candidate);
  if (!sum && !theirs) return false;
  if ((!theirs && !pair.reference->proved()) || (!sum && !pair.candidate->proved())) return false;
  if (!theirs) theirs = *pair.reference;
  if (!sum) sum = *pair.candidate;
  const PairMetrics metrics =
      measure(*theirs, *sum, backend_, {.scale = scale_for(pair.key, seeds_), .sample = 0});
  if (metrics.evidence != Evidence::read || metrics.total.nonfinite_mismatch > 0) return false;
  const double norm = std::sqrt(metrics.total.sums.reference_squares);
  const double error = std::sqrt(metrics.total.sums.error_squares);
  const double limit = limits_.tensors[i].relative * norm;
  if (limits_.tensors[i].rule != Rule::relative || !(error <= limit)) return false;
  if (reduced) {
    outcomes_[i].sum_is_right = metrics.total.count == element_count(pair.reference->shape);
    return false;
  }
  outcomes_[i].compared = metrics.total.count == element_count(pair.reference->shape);
  settle(i, error, limit, norm);
  add(i, FindingKind::partial_incomplete, 0,
      "the ranks hold addends over " + axes_text(sum->layout.partial.empty() ? *theirs : *sum) +
          ", whose sum is right, and nothing that was recorded adds them up");
  return true;
}

bool Judge::known_kind(const LogicalTensor& tensor) { return kept_of(tensor) <= RecordKind::hash; }

void Judge::judge_values(std::size_t i) {
  const Metrics& total = measured_[i].total;
  if (total.nonfinite_mismatch > 0) {
    outcomes_[i].score = kHugeScore;
    add(i, FindingKind::nonfinite, kHugeScore,
        "NaN or Inf in " + std::to_string(total.nonfinite_mismatch) + " elements on one side only");
    return;
  }
  switch (limits_.tensors[i].rule) {
    case Rule::equal:
      return judge_equality(i);
    case Rule::relative:
      return judge_error(i);
    case Rule::update:
      return judge_update(i);
    case Rule::step:
      return judge_step(i);
  }
}

void Judge::judge_equality(std::size_t i) {
  const Metrics& total = measured_[i].total;
  Outcome& outcome = outcomes_[i];
  outcome.error = relative(std::sqrt(total.sums.error_squares), total);
  if (total.unequal == 0) return;
  outcome.score = kHugeScore;
  const bool weights = alignment_.pairs[i].key.phase == Phase::param;
  add(i, FindingKind::not_equal, kHugeScore,
      std::to_string(total.unequal) + " of " + std::to_string(total.count) +
          " elements differ, none may" +
          (weights ? ": the runs do not start from the same parameters; ttrace-capture "
                     "--init-from REFERENCE gives the candidate the reference's"
                   : ""));
}

double Judge::relative(double error, const Metrics& total) {
  const double norm = std::sqrt(total.sums.reference_squares);
  return norm > 0 ? error / norm : error;
}

void Judge::judge_error(std::size_t i) {
  if (judge_noise(i)) return;
  const Metrics& total = measured_[i].total;
  const double norm = std::sqrt(total.sums.reference_squares);
  const double error = std::sqrt(total.sums.error_squares);
  const double plain = plain_limit(i) * norm;
  double limit = plain;
  // Floors cost reading; they only matter where the plain limit is exceeded.
  if (!(error <= plain)) limit = std::hypot(plain, floors_.of(i));
  settle(i, error, limit, norm);
}

// `error`, `limit` and `norm` are absolute.
void Judge::settle(std::size_t i, double error, double limit, double norm) {
  Outcome& outcome = outcomes_[i];
  outcome.score = score_of(error, limit);
  outcome.error = norm > 0 ? error / norm : error;
  outcome.limit = norm > 0 ? limit / norm : limit;
  outcome.rounding = outcome.limit;
  if (error <= limit) return;
  add(i, FindingKind::over_limit, outcome.score,
      (norm > 0 ? "relative error " : "the reference is zero, error ") +
          short_number(outcome.error) + ", " + short_number(outcome.score) + " x its limit");
}

void Judge::judge_norms(std::size_t i) {
  const Metrics& total = measured_[i].total;
  const Pair& pair = alignment_.pairs[i];
  outcomes_[i].compared = true;
  if (total.reference_nan != total.candidate_nan || total.reference_inf != total.candidate_inf) {
    add(i, FindingKind::nonfinite, kHugeScore, "different counts of NaN or Inf");
    return;
  }
  if (limits_.tensors[i].rule == Rule::equal || limits_.tensors[i].rule == Rule::step) {
    outcomes_[i].compared = false;
    add(i, FindingKind::not_compared, 1,
        "must be equal, but only statistics were kept, and the hashes differ");
    return;
  }
  const double norm = std::sqrt(total.sums.reference_squares);
  const double other = std::sqrt(total.sums.candidate_squares) * scale_for(pair.key, seeds_);
  settle(i, std::fabs(other - norm), (plain_limit(i) + own_epsilon(i)) * norm, norm);
  if (!outcomes_[i].findings.empty()) {
    outcomes_[i].findings.back().evidence.emplace_back("compared", "norms only, by statistics");
  }
}

double Judge::own_epsilon(std::size_t i) const {
  return limits_.tensors[i].rule == Rule::update ? limits_.tensors[i].own_epsilon : 0;
}

// What the placement of either side could not prove, before what was measured.
void Judge::report_problems(std::size_t i) {
  const Pair& pair = alignment_.pairs[i];
  std::vector<Finding>& findings = outcomes_[i].findings;
  std::vector<Finding> problems;
  for (const LogicalTensor* side : {pair.reference, pair.candidate}) {
    for (Finding problem : side->problems) {
      // That a sum is wrong says more than that nobody has made it yet.
      if (!findings.empty() && problem.kind == FindingKind::partial_incomplete &&
          all_addends(*side))
        continue;
      if (side == pair.reference) problem.message = "in the reference: " + problem.message;
      if (problem.kind == FindingKind::replica_conflict && side == pair.candidate) {
        add_copies(*side, measured_[i], outcomes_[i].rounding, problem);
      }
      problems.push_back(std::move(problem));
    }
  }
  findings.insert(findings.begin(), std::move_iterator(problems.begin()),
                  std::move_iterator(problems.end()));
}

void Judge::compare_flags(std::size_t i) {
  const auto no_gradient = [](const LogicalTensor& tensor) {
    return !tensor.shards.empty() &&
           (tensor.shards.front().shard.record->flags & kFlagNoGradient) != 0;
  };
  const Pair& pair = alignment_.pairs[i];
  const bool reference = no_gradient(*pair.reference);
  if (reference == no_gradient(*pair.candidate)) return;
  add(i, FindingKind::not_equal, kHugeScore,
      std::string("the step found no gradient in the ") + (reference ? "reference" : "candidate") +
          " only");
}

void Judge::add(std::size_t i, FindingKind kind, double score, std::string message) {
  const Pair& pair = alignment_.pairs[i];
  Finding finding;
  finding.kind = kind;
  finding.key = pair.key;
  finding.score = score;
  finding.message = std::move(message);
  if (!pair.note.empty()) finding.evidence.emplace_back("note", pair.note);
  add_evidence(pair, measured_[i], outcomes_[i].rounding, finding);
  outcomes_[i].findings.push_back(std::move(finding));
}

void Judge::follow_alias(std::size_t i) {
  const std::size_t same = alignment_.pairs[i].same_as;
  if (same == kNoPair) return;
  outcomes_[i] = outcomes_[same];
  outcomes_[i].findings.clear();  // reported once
}

std::vector<Outcome> judge(const JudgeInput& input) { return Judge(input).run(); }

}  // namespace ttrace
