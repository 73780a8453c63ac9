// SPDX-License-Identifier: Apache-2.0
// See later.hpp. Drift is in everything: parameters that are a little off make a forward pass that
// is a little off. A mistake that a later iteration brings begins somewhere: what comes before it
// is as near as ever, and it is off by as much as an unrelated tensor would be.
#include "diff/later.hpp"

#include <algorithm>
#include <cmath>

#include "diff/judge.hpp"
#include "diff/measure_all.hpp"

namespace ttrace {
namespace {

using Jump = LaterIteration::Jump;

constexpr double kWrong = 0.5;        // relative error: a stale tensor has 1.4, one of zeros 1
constexpr double kBeyond = 8;         // times its limit, floors included
constexpr double kNearer = 1000;      // what comes before is so much nearer, or within its limit
constexpr double kWrongResult = 0.1;  // relative error of what the root module returns

double relative_error(const Sums& sums) {
  return std::sqrt(sums.error_squares / sums.reference_squares);
}

// The first tensor, in the order of the step, that jumps.
class Jumps {
 public:
  Jumps(const Prepared& prepared, const Limits& limits, const std::vector<PairMetrics>& measured)
      : pairs_(prepared.alignment.pairs), limits_(limits), measured_(measured) {
    std::vector<std::pair<Place, std::size_t>> places;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (counts(i)) places.emplace_back(prepared.flow->place(pairs_[i].key), i);
    }
    std::sort(places.begin(), places.end());
    for (const auto& [place, i] : places) order_.push_back({place.stage, i});
  }

  // Where there are no outcomes yet, by plain limits and whatever came before: whether to judge at
  // all, because floors cost reading.
  [[nodiscard]] std::optional<Jump> find(const std::vector<Outcome>* outcomes) {
    before_ = {};
    farthest_ = 0;
    note_parameters();
    std::optional<Jump> in_forward;
    for (const Entry& entry : order_) {
      const auto [error, limit] = error_and_limit(entry.pair, outcomes);
      // Near-tied routers send tokens elsewhere in a healthy run, and some expert's few values are
      // others then. The result stays near.
      if (entry.stage == Stage::loss && in_forward && error > kWrongResult) return in_forward;
      const bool wrong = error > kWrong && error > kBeyond * limit;
      if (wrong && (outcomes == nullptr || farthest_ * kNearer <= error)) {
        Jump jump = before_;
        jump.key = pairs_[entry.pair].key;
        jump.error = std::min(error, kHugeScore);
        jump.score = limit > 0 ? std::min(error / limit, kHugeScore) : kHugeScore;
        if (entry.stage != Stage::forward) return jump;
        in_forward = jump;
      }
      note(error, limit, to_string(pairs_[entry.pair].key));
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    Stage stage;
    std::size_t pair;
  };

  // Addends that nobody has added up yet are no copies in any iteration.
  [[nodiscard]] bool counts(std::size_t i) const {
    const Pair& pair = pairs_[i];
    const PairMetrics& metrics = measured_[i];
    const bool whole_model = pair.key.phase == Phase::grad && pair.key.module == kRootModule;
    return pair.same_as == kNoPair && !whole_model && pair.key.phase != Phase::comm &&
           limits_.tensors[i].rule == Rule::relative && metrics.evidence <= Evidence::hash &&
           metrics.total.sums.reference_squares > 0 && pair.reference->proved() &&
           pair.candidate->proved();
  }

  [[nodiscard]] std::pair<double, double> error_and_limit(
      std::size_t i, const std::vector<Outcome>* outcomes) const {
    const Metrics& total = measured_[i].total;
    const double plain = limits_.tensors[i].relative;
    if (total.nonfinite_mismatch > 0) return {kHugeScore, plain};
    const double judged = outcomes == nullptr ? 0 : (*outcomes)[i].limit;
    return {relative_error(total.sums), std::max(plain, judged)};
  }

  // Together: one that only rounding has moved (a bias whose gradient is zero but for rounding, by
  // Adam's first step) is as good as random, and nothing depends on it.
  void note_parameters() {
    Sums sums;
    double epsilon = 0;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].key.phase != Phase::param || !is_floating(pairs_[i].reference->dtype)) continue;
      add(sums, measured_[i].total.sums);
      epsilon = std::max(epsilon, limits_.tensors[i].own_epsilon);
    }
    if (sums.reference_squares > 0) note(relative_error(sums), epsilon, "the parameters");
  }

  void note(double error, double limit, const std::string& name) {
    ++before_.before;
    if (error > limit) farthest_ = std::max(farthest_, error);
    if (error <= before_.largest_before) return;
    before_.largest_before = error;
    before_.largest_before_name = name;
  }

  const std::vector<Pair>& pairs_;
  const Limits& limits_;
  const std::vector<PairMetrics>& measured_;
  std::vector<Entry> order_;
  Jump before_;          // what was seen so far
  double farthest_ = 0;  // relative error, of those beyond their limits
};

void note_largest(const std::vector<Pair>& pairs, const std::vector<PairMetrics>& measured,
                  LaterIteration& later) {
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Sums& sums = measured[i].total.sums;
    if (!(sums.reference_squares > 0)) continue;
    const Key& key = pairs[i].key;
    LaterIteration::Largest& largest = later.largest[key.phase];
    const double error = relative_error(sums);
    if (largest.key.empty() || error > largest.error) largest = {error, to_string(key)};
  }
}

}  // namespace

LaterIteration look_at(const Trace& reference, const Trace& candidate, const Backend& backend,
                       std::int64_t iteration, const CompareOptions& options) {
  LaterIteration later;
  later.iteration = iteration;
  Prepared prepared;
  prepare_sampling(prepared, reference, candidate, iteration, options);
  const Alignment& alignment = prepared.alignment;
  const Limits limits = options.limits(alignment, *prepared.flow);
  const Seeds seeds = find_seeds(alignment, reference, candidate, limits, backend);
  const auto measured = measure_all(alignment, seeds, backend, {options.trust_hash, true, {}});
  note_largest(alignment.pairs, measured, later);

  Jumps jumps(prepared, limits, measured);
  later.jump = jumps.find(nullptr);
  if (!later.jump) return later;
  const JudgeInput judged{
      &prepared.reference, &prepared.candidate, &alignment, &limits, &seeds, &measured, &backend,
      &*prepared.flow};
  const std::vector<Outcome> outcomes = judge(judged);
  later.jump = jumps.find(&outcomes);
  return later;
}

}  // namespace ttrace
