// SPDX-License-Identifier: Apache-2.0
// Checks traces against invariants: whole ones, and ones that are still being written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "invariant/infer.hpp"
#include "invariant/outcome.hpp"
#include "invariant/relation.hpp"

namespace ttrace::invariant {

struct Judgement {
  const Invariant* invariant = nullptr;
  const Relation* relation = nullptr;  // nullptr: one that is not known here; never triggered
  Verdict verdict = Verdict::not_triggered;
  std::uint64_t covered = 0;       // examples that the precondition covers
  std::uint64_t violations = 0;    // of those, that do not hold
  std::vector<Evidence> evidence;  // of the violations, the first kEvidence of them
};
// A broken run may violate an invariant at every step; what a report needs is bounded.
inline constexpr std::size_t kEvidence = 1000;

struct CheckResult {
  std::vector<Judgement> judgements;  // in the order of the invariants
  Gaps gaps;
  std::uint64_t records = 0;
  std::uint64_t late = 0;  // records that came after their step was judged: not looked at
  std::int64_t first_step = kNoStep, last_step = kNoStep;

  [[nodiscard]] std::uint64_t count(Verdict verdict) const {
    std::uint64_t number = 0;
    for (const Judgement& judgement : judgements) number += judgement.verdict == verdict;
    return number;
  }
};

class Checker {
 public:
  // The invariants must outlive it; their values are of the pool `values`.
  Checker(Values& values, std::span<const Invariant> invariants, const Signatures* signatures,
          bool loses_tail);
  ~Checker();

  void check(std::span<const Record> records);  // a whole trace

  // Or record by record, see stream.hpp.
  std::int64_t push(Record record);
  void advance(std::int64_t limit);
  void finish();
  void set_loses_tail();  // known before finish() at the latest

  [[nodiscard]] CheckResult result() const;
  // Violations so far, over all invariants.
  [[nodiscard]] std::uint64_t violations() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

[[nodiscard]] CheckResult check(Values& values, const TraceInput& trace,
                                std::span<const Invariant> invariants,
                                const Signatures* signatures);

}  // namespace ttrace::invariant
