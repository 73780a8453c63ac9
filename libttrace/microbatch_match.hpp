// SPDX-License-Identifier: Apache-2.0
// The passes that give a candidate's turns their logical micro-batch numbers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/microbatch_inputs.hpp"

namespace ttrace {

class MicrobatchMatcher {
 public:
  // Numbers the reference's micro-batches by themselves.
  MicrobatchMatcher(RunInputs reference, RunInputs candidate);

  // Whether any slot tells the reference's micro-batches apart.
  [[nodiscard]] bool usable() const { return !weights_.empty(); }
  // Matches what equals a reference micro-batch or is a part of one, then what sees no inputs.
  void match();
  // Gives numbers of their own to turns whose inputs match nothing.
  void number_the_rest();

  [[nodiscard]] const MicrobatchNumbers& reference_numbers() const { return reference_numbers_; }
  [[nodiscard]] const MicrobatchNumbers& numbers() const { return numbers_; }
  [[nodiscard]] const RunInputs& candidate() const { return candidate_; }
  // Turns with inputs that have no number yet; equal inputs stand together.
  [[nodiscard]] std::vector<std::vector<Turn>> unmatched_kinds() const;
  [[nodiscard]] std::set<Turn> unmatched() const;
  // The slots that identify a turn: those that the reference has too and that tell most apart.
  [[nodiscard]] std::vector<std::string> identifying_slots(const Turn& turn) const;
  [[nodiscard]] std::set<std::int32_t> reference_microbatches() const;
  [[nodiscard]] std::set<std::string> reference_shapes(const std::string& slot) const;
  // By logical number.
  [[nodiscard]] std::map<std::int32_t, Shard> reference_inputs(const std::string& slot) const;
  // Axes along which inputs are cut: ranks hold parts of one micro-batch there.
  [[nodiscard]] const std::set<std::string>& cut_axes() const { return cut_axes_; }

 private:
  using Slots = std::map<std::string, std::vector<Shard>>;
  void weigh_slots();
  [[nodiscard]] bool is_taken(std::int32_t rank, std::int32_t number) const;
  void match_equal(const Turn& turn);
  void match_cut(const std::string& slot);
  void follow_other_stages();
  [[nodiscard]] std::set<Turn> without_number() const;

  RunInputs reference_;
  RunInputs candidate_;
  MicrobatchNumbers reference_numbers_;
  MicrobatchNumbers numbers_;
  std::map<std::int32_t, Slots> logicals_;      // the reference's inputs by logical number
  std::map<std::string, std::size_t> weights_;  // different contents of a slot
  std::set<std::string> cut_axes_;
  DocumentTable documents_;  // of the reference, by logical number, iteration 0
};

// Names single samples (rows of the last dimension) that are lost, foreign or repeated, as evidence
// for a finding; empty where rows are cut or were not recorded.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> row_evidence(
    const MicrobatchMatcher& matcher, const std::string& slot);

}  // namespace ttrace
