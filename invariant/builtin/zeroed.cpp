// SPDX-License-Identifier: Apache-2.0
// Gradients begin each step at zero. Where zero_grad() is missing, the gradient of an iteration
// still holds that of the iteration before. Two things show it in a trace of two iterations in a
// row. Elements that nothing was added to (rows of an embedding whose tokens did not come up) are
// bit for bit what they were. And the gradient of a bias is the sum of its module's output
// gradients, which were recorded: what is left over is the gradient of the iteration before, or
// not.
#include <algorithm>
#include <cmath>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/copies.hpp"
#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kRow = 64;         // elements of a row of a flat piece
constexpr std::size_t kLeastDistinct = 4;  // values in a row that is no accident
constexpr std::size_t kModules = 32;       // whose output gradients are read
constexpr double kRounding = 1e-4;         // share that is left over in any case
constexpr double kExplained = 0.02;        // share of a gradient that rounding may leave over

struct RowCounts {
  std::uint64_t kept = 0;     // not zero, and the same bits as before
  std::uint64_t changed = 0;  // not zero, and not the same
};

bool varied(const double* row, std::uint64_t length) {
  std::set<double> distinct;
  for (std::uint64_t i = 0; i < length && distinct.size() <= kLeastDistinct; ++i) {
    if (row[i] != 0) distinct.insert(row[i]);
  }
  return distinct.size() >= kLeastDistinct;
}

RowCounts compare_rows(const Part& before, const Part& now) {
  RowCounts counts;
  const Shape& shape = now.record->shape;
  const std::uint64_t length =
      shape.size() > 1 ? std::min<std::uint64_t>(shape.back(), 4096) : kRow;
  if (length < 2 * kLeastDistinct) return counts;
  for_each_tile({before, now}, [&](const Tile& tile, std::uint64_t first) {
    const std::uint64_t size = tile[0].size();
    // Rows that a tile begins or ends in are left out.
    for (std::uint64_t at = (length - first % length) % length; at + length <= size; at += length) {
      const double* old = tile[0].data() + at;
      const double* row = tile[1].data() + at;
      if (!varied(row, length)) continue;
      ++(std::equal(row, row + length, old) ? counts.kept : counts.changed);
    }
  });
  return counts;
}

// ---- biases ----

using Sums = std::vector<double>;

// Sums of the rows of all output gradients of a module on a rank.
void add_output_gradients(const SegmentReader& segment, const std::string& module, Sums& sums) {
  for (const Record& record : segment.records()) {
    if (record.key.phase != Phase::backward || record.key.module != module) continue;
    if (record.key.slot != "grad_output.0" || row_length(record.shape) != sums.size()) continue;
    const auto part = whole(segment, &record);
    if (!part) continue;
    for_each_tile({*part}, [&](const Tile& tile, std::uint64_t first) {
      for (std::size_t i = 0; i < tile[0].size(); ++i)
        sums[(first + i) % sums.size()] += tile[0][i];
    });
  }
}

Sums values_of(const Part& part) {
  Sums values;
  for_each_tile({part}, [&](const Tile& tile, std::uint64_t) {
    values.insert(values.end(), tile[0].begin(), tile[0].end());
  });
  return values;
}

double product(const Sums& left, const Sums& right) {
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) sum += left[i] * right[i];
  return sum;
}

struct Explained {
  double left_alone = 1;  // share of the gradient that the output gradients do not explain
  double left_both = 1;   // and that they and the gradient before do not
  double old_share = 0;   // how much of the gradient before is in it
  double fresh_part = 0;  // norm of what the output gradients make of it, relative
};

// Least squares: gradient = a * fresh, and gradient = a * fresh + b * old.
Explained explain(const Sums& gradient, const Sums& fresh, const Sums& old) {
  Explained result;
  const double gg = product(gradient, gradient);
  const double ff = product(fresh, fresh), oo = product(old, old), fo = product(fresh, old);
  const double gf = product(gradient, fresh), go = product(gradient, old);
  if (!(gg > 0) || !(ff > 0) || !(oo > 0)) return result;
  result.left_alone = std::sqrt(std::max(0.0, 1 - gf * gf / (ff * gg)));
  const double determinant = ff * oo - fo * fo;
  if (!(determinant > 1e-6 * ff * oo)) return result;  // the two are parallel
  const double a = (gf * oo - go * fo) / determinant;
  result.old_share = (go * ff - gf * fo) / determinant;
  result.fresh_part = std::fabs(a) * std::sqrt(ff / gg);
  double left = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double rest = gradient[i] - a * fresh[i] - result.old_share * old[i];
    left += rest * rest;
  }
  result.left_both = std::sqrt(left / gg);
  return result;
}

class Zeroed final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    bool pairs = false;
    for (const auto& [rank, where] : evidence.places()) {
      if (evidence.parameters(rank, iteration - 1).empty()) continue;
      pairs = pairs || !evidence.parameters(rank, iteration).empty();
      look_at_rows(evidence, rank, iteration, outcome);
    }
    if (pairs) look_at_biases(evidence, iteration, outcome);
    seen_pair_ = seen_pair_ || pairs;
  }

  void finish(const Evidence&, Outcome& outcome) override {
    if (!seen_pair_) {
      ++outcome.unchecked["it takes two iterations in a row: ttrace-capture --iterations 0-1"];
    }
    if (biases_ == 0) return;
    // Whether to look for a call that is missing, or for what is special about one parameter.
    const std::string share = std::to_string(holding_) + " of " + std::to_string(biases_);
    for (Violation& violation : outcome.violations) {
      violation.evidence.emplace_back("biases whose gradient holds the one before", share);
    }
  }

 private:
  static constexpr const char* kAdvice =
      "where gradients are cleared, once an iteration and before its first backward pass: "
      "zero_grad() of the optimizer or the model that holds this parameter, or of the buffer that "
      "its gradient is kept in (a bucket, main_grad; in C and C++ a fill with zeros)";

  static const Record* compared_before(const ParameterSteps& earlier, const std::string& name,
                                       const Record* now) {
    const auto before = earlier.find(name);
    if (before == earlier.end() || now == nullptr || before->second.steps > 1) return nullptr;
    const Record* record = before->second.gradient();
    const bool alike = record != nullptr && record->shape == now->shape &&
                       record->dtype == now->dtype && record->statistics.sum_squares > 0;
    return alike ? record : nullptr;
  }

  static void look_at_rows(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                           Outcome& outcome) {
    const ParameterSteps& earlier = evidence.parameters(rank, iteration - 1);
    std::vector<std::pair<std::string, RowCounts>> kept;
    RowCounts all;
    for (const auto& [name, step] : evidence.parameters(rank, iteration)) {
      const Record* before = compared_before(earlier, name, step.reduced);
      if (before == nullptr) continue;
      const auto old = whole(*earlier.at(name).segment, before);
      const auto now = whole(*step.segment, step.reduced);
      if (!old || !now) continue;
      const RowCounts counts = compare_rows(*old, *now);
      all.kept += counts.kept;
      all.changed += counts.changed;
      if (counts.kept > 0) kept.emplace_back(name, counts);
    }
    outcome.compared["rows of gradients"] += all.kept + all.changed;
    // Where nearly all are equal the iterations are: the same data, and a learning rate of 0.
    if (all.kept > 9 * all.changed) {
      if (all.kept > 0) ++outcome.unchecked["the gradients of two iterations are the same"];
      return;
    }
    for (const auto& [name, counts] : kept) {
      Violation violation = about(evidence, rank, iteration, name);
      violation.certainty = Certainty::likely;
      violation.what += ": " + counted(counts.kept, "row") + " of " +
                        std::to_string(counts.kept + counts.changed) +
                        " that are not zero are bit for bit what they were then";
      outcome.report(std::move(violation));
    }
  }

  static Violation about(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                         const std::string& name) {
    Violation violation;
    violation.iteration = iteration;
    violation.microbatch = 0;
    violation.ranks = {rank};
    violation.module = name;
    violation.key = "it" + std::to_string(iteration) + "/grad/" + name + "/reduced";
    violation.what = "the gradient of " + name + " on rank " + std::to_string(rank) +
                     " in iteration " + std::to_string(iteration) +
                     " still holds that of iteration " + std::to_string(iteration - 1);
    violation.advice = kAdvice;
    violation.evidence = {{"module", evidence.described(owner_of(name))}};
    return violation;
  }

  void look_at_biases(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) {
    std::size_t modules = 0;
    for (const auto& [key, shards] : evidence.parameter_shards(iteration)) {
      const bool bias =
          key.module.size() > 5 && key.module.compare(key.module.size() - 5, 5, ".bias") == 0;
      if (!bias || key.phase != Phase::grad || key.slot != "reduced" || key.call > 0) continue;
      if (modules == kModules) {
        ++outcome.unchecked["biases beyond the first " + std::to_string(kModules)];
        continue;
      }
      const Copies copies = evidence.copies().of(key, shards);
      for (const CopySet& set : copies.sets) {
        if (look_at_bias(evidence, iteration, key.module, set, outcome)) ++modules;
      }
    }
  }

  // The reduction has added up what all ranks that hold a copy have computed.
  bool look_at_bias(const Evidence& evidence, std::int64_t iteration, const std::string& name,
                    const CopySet& set, Outcome& outcome) {
    const Shard& first = set.front();
    const ParameterSteps& earlier = evidence.parameters(first.rank, iteration - 1);
    const Record* before = compared_before(earlier, name, first.record);
    if (before == nullptr || first.record->shape.size() != 1 || first.record->shape[0] < 8) {
      return false;
    }
    const auto old = whole(*earlier.at(name).segment, before);
    const auto now = whole(*first.segment, first.record);
    if (!old || !now) return false;
    Sums fresh(now->count, 0.0);
    for (const Shard& shard : set) add_output_gradients(*shard.segment, owner_of(name), fresh);
    const Explained explained = explain(values_of(*now), fresh, values_of(*old));
    // Of 8 numbers and more a gradient that is not in there cannot explain nearly all that is left.
    const bool holds_old = explained.left_alone > kRounding && explained.left_both < kExplained &&
                           explained.left_both < 0.1 * explained.left_alone &&
                           std::fabs(explained.old_share) > 0.05 &&
                           explained.fresh_part > 0.05;  // else it is the gradient before
    if (!holds_old && explained.left_alone > kExplained) {
      ++outcome.unchecked["biases whose gradient the recorded ones do not add up to"];
      return true;
    }
    ++outcome.compared["gradients of biases"];
    ++biases_;
    if (!holds_old) return true;
    ++holding_;
    Violation violation = about(evidence, first.rank, iteration, name);
    violation.what +=
        ": it is the sum of this iteration's output gradients and " + printed(explained.old_share) +
        " x the gradient before (what is left over is " + printed(explained.left_both) +
        " of it, without that " + printed(explained.left_alone) + ")";
    outcome.report(std::move(violation));
    return true;
  }

  bool seen_pair_ = false;
  std::size_t biases_ = 0;   // that were judged
  std::size_t holding_ = 0;  // of which the gradient holds the one before
};

}  // namespace

std::unique_ptr<Check> make_zeroed() { return std::make_unique<Zeroed>(); }

}  // namespace ttrace::builtin
