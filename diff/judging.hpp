// SPDX-License-Identifier: Apache-2.0
// The judge at work: one outcome a pair, in an order in which what is made of gradients can look at
// how these came out. Only for judge*.cpp; see judge.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diff/attention.hpp"
#include "diff/floors.hpp"
#include "diff/judge.hpp"
#include "diff/update.hpp"

namespace ttrace {

double score_of(double error, double limit);

class Judge {
 public:
  explicit Judge(const JudgeInput& input);
  std::vector<Outcome> run();

 private:
  enum class Turn : std::uint8_t { first, of_gradients, norms };
  static Turn turn_of(const Key& key);
  void judge_pair(std::size_t i);
  void judge_measured(std::size_t i);

  // Where ranks have the losses of their parts of the data, these combined. False, and nothing
  // done, when this is no such loss or is not right in that way.
  bool judge_split_loss(std::size_t i);

  // Where the ranks' copies differ because each is an addend, and their sum is right. Whether
  // somebody adds them up is for accept_completed_sums to say.
  bool judge_sum(std::size_t i);
  static bool known_kind(const LogicalTensor& tensor);
  void judge_values(std::size_t i);
  void judge_equality(std::size_t i);
  static double relative(double error, const Metrics& total);
  void judge_error(std::size_t i);

  // Relative; for what is made of gradients, widened as theirs was by a floor.
  double plain_limit(std::size_t i);
  std::size_t gradient_of(const Key& key) const;

  // The error of the norm of all gradients, if each has an error as large as its limit.
  double norm_limit() const;

  // `error`, `limit` and `norm` are absolute.
  void settle(std::size_t i, double error, double limit, double norm);

  // ---- judge_step.cpp: what the optimizer made of the gradients ----
  void judge_update(std::size_t i);
  void judge_step(std::size_t i);

  // An update grows with its gradient at most, and the gradient may be off by the threshold.
  void judge_left_out(std::size_t i, const UpdateSums& sums, std::size_t gradient);

  // The reference's value that the step changed; a master's own, if it was captured.
  const LogicalTensor* before_step(const Key& key) const;

  // ---- judge_noise.cpp: against measured noise. False, and nothing done, where there is none ----
  bool judge_noise(std::size_t i);
  // What judge_noise will ask for, all at once, by several threads.
  void prepare_noise();
  [[nodiscard]] std::optional<StatisticsResult> statistics_of(std::size_t i);
  [[nodiscard]] bool noise_of(const Pair& pair, StatisticsInput& input) const;
  [[nodiscard]] TensorClass class_of(const Key& key) const;
  [[nodiscard]] double gain_of(const Pair& pair) const;
  void judge_norms(std::size_t i);
  double own_epsilon(std::size_t i) const;

  // What the placement of either side could not prove, before what was measured.
  void report_problems(std::size_t i);
  void compare_flags(std::size_t i);
  void add(std::size_t i, FindingKind kind, double score, std::string message);
  void follow_alias(std::size_t i);

  const Alignment& alignment_;
  const Limits& limits_;
  const std::vector<PairMetrics>& measured_;
  const Side& reference_;
  const Side& candidate_;
  const Seeds& seeds_;
  const Backend& backend_;
  const Flow& flow_;
  const Noise* noise_;
  Floors floors_;
  Attention attention_;
  std::vector<Outcome> outcomes_;
  std::vector<std::optional<StatisticsResult>> statistics_;
  std::map<Key, std::size_t> index_;
};

}  // namespace ttrace
