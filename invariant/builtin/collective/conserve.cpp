// SPDX-License-Identifier: Apache-2.0
// What comes out of a collective is what went in: sums are sums of all members' inputs, as exact as
// the type and any order of additions allow (reduction.hpp), all members get the same bits of them,
// and slices arrive where they belong.
#include <algorithm>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/expect.hpp"
#include "invariant/builtin/collective/reduction.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

// Members do not agree on what they call: another check's question.
bool agree(const Joint& joint) {
  return joint.paired || std::all_of(joint.calls.begin(), joint.calls.end(), [&](const Call& call) {
           const Collective& first = *joint.calls.front().row;
           return call.row->function == first.function && call.row->reduction == first.reduction &&
                  call.row->dtype == first.dtype && call.row->peer == first.peer &&
                  (call.row->flags & kCollectiveFailed) == 0;
         });
}

// NaN need not have the same bits everywhere.
bool has_nan(const Record& record) { return record.statistics.nan_count > 0; }

std::string place_text(std::uint64_t wrong, std::uint64_t elements) {
  return std::to_string(wrong) + " of " + counted(elements, "element");
}

std::string verb_of(const std::string& reduction) {
  if (reduction == "avg") return "mean";
  if (reduction == "premul_sum") return "sum times the factor";
  return reduction == "prod" ? "product" : reduction;
}

class Conserve final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    places_.clear();
    for (const Joint& joint : log.of(iteration)) {
      if (!agree(joint)) {
        ++outcome.unchecked["members do not agree on what they call"];
      } else {
        look_at_joint(evidence, joint, outcome);
      }
    }
  }

  void finish(const Evidence& /*evidence*/, Outcome& outcome) override {
    for (const auto& [violation, count] : further_) {
      outcome.violations[violation].evidence.emplace_back("further calls at this place",
                                                          std::to_string(count));
    }
  }

 private:
  void look_at_joint(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    const Expected expected = expected_of(joint);
    if (!expected.unknown.empty()) ++outcome.unchecked[expected.unknown];
    bool wrong = false;
    for (const ExpectedReduction& reduction : expected.reductions) {
      wrong = compare(evidence, joint, expected, reduction, outcome) || wrong;
    }
    std::vector<std::pair<const ExpectedCopy*, Equality>> other;
    for (const ExpectedCopy& copy : expected.copies) {
      ++outcome.compared["copied pieces"];
      if (copy.from.part.record == copy.to.record && copy.from.part.start == copy.to.start)
        continue;
      const Equality equality = compare_bits(copy.from.part, copy.to);
      if (equality.different > 0) other.emplace_back(&copy, equality);
    }
    if (!other.empty()) {
      add(joint, describe(evidence, joint, expected, other), outcome);
      wrong = true;
    }
    if (expected.copies.empty()) wrong = compare_origin(evidence, joint, outcome) || wrong;
    if (!wrong) compare_outputs(evidence, joint, outcome);
  }

  // True when it is not what it should be.
  bool compare(const Evidence& evidence, const Joint& joint, const Expected& all,
               const ExpectedReduction& expected, Outcome& outcome) {
    const Collective& row = *joint.calls.front().row;
    const auto reduced =
        compare_reduction(inputs_of(expected), expected.to, row.reduction, row.factor);
    if (!reduced) {
      ++outcome.unchecked["a reduction that is not known for this type: " + row.reduction];
      return false;
    }
    ++outcome.compared["reductions"];
    if (reduced->undecided > 0) {
      outcome.unchecked["elements that may have left the range of their type"] +=
          reduced->undecided;
    }
    if (reduced->wrong == 0) return false;
    Violation violation = started(joint);
    violation.ranks = expected.ranks;
    violation.key = to_string(expected.to.record->key);
    violation.what = named(evidence, joint) + ": " + ranks_text(expected.ranks) +
                     " did not get the " + verb_of(row.reduction) +
                     " of what went in: " + place_text(reduced->wrong, reduced->elements) +
                     " beyond rounding, first number " + std::to_string(reduced->first) + ": " +
                     printed(reduced->found) + ", not " + printed(reduced->expected);
    explain(joint, expected, *reduced, violation);
    const std::string other = whose_part(joint, all, expected);
    if (!other.empty()) {
      violation.what += "; it holds the part of " + other;
      violation.advice = "the order of the members, offsets into the buffer";
    }
    violation.evidence.emplace_back("largest error in units of its limit", printed(reduced->worst));
    add(joint, std::move(violation), outcome);
    return true;
  }

  static std::vector<Part> inputs_of(const ExpectedReduction& reduction) {
    std::vector<Part> inputs;
    for (const Source& source : reduction.from) inputs.push_back(source.part);
    return inputs;
  }

  // Another member's, which this one got in place of its own.
  static std::string whose_part(const Joint& joint, const Expected& all,
                                const ExpectedReduction& wrong) {
    const Collective& row = *joint.calls.front().row;
    for (const ExpectedReduction& other : all.reductions) {
      if (other.ranks == wrong.ranks || other.to.count != wrong.to.count) continue;
      const auto reduced = compare_reduction(inputs_of(other), wrong.to, row.reduction, row.factor);
      if (reduced && reduced->wrong == 0 && reduced->undecided == 0) return ranks_text(other.ranks);
    }
    return "";
  }

  // Whether what came out is nearly everywhere the right sum, times one factor.
  static bool is_scaled(const Joint& joint, const ExpectedReduction& expected,
                        const Reduced& reduced) {
    const Collective& row = *joint.calls.front().row;
    if (!sums(row)) return false;
    const auto scaled = compare_reduction(inputs_of(expected), expected.to, "premul_sum",
                                          weight_of(row) * reduced.factor);
    return scaled && scaled->wrong * 100 <= scaled->elements;
  }

  static void explain(const Joint& joint, const ExpectedReduction& expected, const Reduced& reduced,
                      Violation& violation) {
    const auto size = static_cast<double>(joint.calls.size());
    if (reduced.left_out && joint.calls.size() > 2) {
      violation.what +=
          "; it lacks what " + ranks_text({expected.from[*reduced.left_out].rank}) + " put in";
    } else if (reduced.twice) {
      violation.what +=
          "; what " + ranks_text({expected.from[*reduced.twice].rank}) + " put in counts twice";
    }
    for (const Source& source : expected.from) {
      const bool own = source.rank == expected.ranks.front() &&
                       source.part.record->hash == expected.to.record->hash;
      if (own) violation.what += "; this is what it had put in, nothing was added";
    }
    const bool scaled = is_scaled(joint, expected, reduced);
    if (scaled) {
      violation.evidence.emplace_back("the output is about this times what it should be",
                                      printed(reduced.factor));
    }
    const double factor = scaled ? reduced.factor : 1;
    violation.advice =
        std::abs(factor * size - 1) < 0.01 || std::abs(factor / size - 1) < 0.01
            ? "a sum where a mean is meant, or the other way round"
            : "a buffer written or read while the collective was under way (a missing wait or "
              "event), or members that are not in the group that was recorded";
  }

  Violation describe(const Evidence& evidence, const Joint& joint, const Expected& expected,
                     const std::vector<std::pair<const ExpectedCopy*, Equality>>& other) {
    Violation violation = started(joint);
    for (const auto& [copy, equality] : other) {
      violation.ranks.insert(violation.ranks.end(), copy->ranks.begin(), copy->ranks.end());
    }
    std::sort(violation.ranks.begin(), violation.ranks.end());
    violation.ranks.erase(std::unique(violation.ranks.begin(), violation.ranks.end()),
                          violation.ranks.end());
    const auto& [copy, equality] = other.front();
    violation.key = to_string(copy->to.record->key);
    violation.what = named(evidence, joint) + ": " + ranks_text(copy->ranks) +
                     " did not get what " + ranks_text({copy->from.rank}) +
                     " put in for it: " + place_text(equality.different, equality.elements) +
                     " differ, first number " + std::to_string(equality.first);
    if (other.size() > 1) violation.what += ", and " + counted(other.size() - 1, "more piece");
    const std::string instead = held_instead(expected, *copy);
    if (!instead.empty()) violation.what += "; it holds what " + instead + " put in";
    violation.advice = instead.empty()
                           ? "a buffer written or read while the collective was under way: a "
                             "missing wait or event, memory that was used again"
                           : "the order of the members, offsets into the buffer";
    return violation;
  }

  static std::string held_instead(const Expected& expected, const ExpectedCopy& wrong) {
    for (const ExpectedCopy& copy : expected.copies) {
      const bool other = copy.from.part.record != wrong.from.part.record ||
                         copy.from.part.start != wrong.from.part.start;
      const bool fits = copy.from.part.count == wrong.to.count;
      if (!other || !fits || wrong.to.count == 0) continue;
      if (compare_bits(copy.from.part, wrong.to).different == 0) {
        return ranks_text({copy.from.rank});
      }
    }
    return "";
  }

  // By hashes, where there are no bytes.
  bool compare_origin(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    bool wrong = false;
    for (const Call& call : joint.calls) {
      const Call* origin = origin_of(joint, call);
      if (origin == nullptr || call.output() == nullptr) continue;
      const Record& from = *origin->input();
      const Record& to = *call.output();
      if (from.bytes != to.bytes || from.dtype != to.dtype) continue;
      ++outcome.compared["copied pieces"];
      if (from.hash == to.hash) continue;
      Violation violation = started(joint);
      violation.ranks = {call.rank};
      violation.key = to_string(to.key);
      violation.what = named(evidence, joint) + ": " + ranks_text({call.rank}) +
                       " did not get what " + ranks_text({origin->rank}) + " put in for it";
      violation.advice = "a buffer written or read while the collective was under way";
      add(joint, std::move(violation), outcome);
      wrong = true;
    }
    return wrong;
  }

  void compare_outputs(const Evidence& evidence, const Joint& joint, Outcome& outcome) {
    std::map<Hash128, std::vector<std::int32_t>> by_hash;
    const std::vector<const Call*> outputs = equal_outputs(joint);
    for (const Call* call : outputs) {
      if (has_nan(*call->output())) return;
      by_hash[call->output()->hash].push_back(call->rank);
    }
    if (outputs.size() < 2) return;
    ++outcome.compared["outputs of all members"];
    if (by_hash.size() < 2) return;
    Violation violation = started(joint);
    // Each may be right in itself, if libraries let members add in orders of their own.
    violation.certainty = Certainty::likely;
    violation.key = to_string(outputs.front()->output()->key);
    std::string who;
    for (const auto& [hash, ranks] : by_hash) {
      who += (who.empty() ? "" : " against ") + ranks_text(ranks);
      violation.ranks.insert(violation.ranks.end(), ranks.begin(), ranks.end());
    }
    std::sort(violation.ranks.begin(), violation.ranks.end());
    violation.what = named(evidence, joint) + ": members did not get the same bits, " + who;
    violation.advice = "outputs read before they were complete, or written since";
    add(joint, std::move(violation), outcome);
  }

  // Of what is wrong at one place again and again the first of an iteration is told.
  void add(const Joint& joint, Violation violation, Outcome& outcome) {
    const Collective& row = *joint.calls.front().row;
    const auto [place, fresh] = places_.try_emplace({joint.group, row.function + "/" + row.module},
                                                    outcome.violations.size());
    if (fresh) {
      violation.evidence.emplace_back("micro-batch",
                                      row.microbatch < 0 ? "" : std::to_string(row.microbatch));
      outcome.report(std::move(violation));
    } else if (told_ != &joint) {
      ++further_[place->second];
    }
    told_ = &joint;
  }

  std::map<std::pair<const Group*, std::string>, std::size_t> places_;
  std::map<std::size_t, std::uint64_t> further_;
  const Joint* told_ = nullptr;
};

}  // namespace

std::unique_ptr<Check> make_conserve() { return std::make_unique<Conserve>(); }

}  // namespace ttrace::builtin
