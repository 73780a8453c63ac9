// SPDX-License-Identifier: Apache-2.0
// See step_replay.hpp. An optimizer rounds each operation to the type of its tensor, so an element
// may be off by a few spacings of that type at the numbers that went into it.
#include "invariant/builtin/step_replay.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "invariant/builtin/values.hpp"

namespace ttrace::builtin {
namespace {

constexpr double kSlack = 8;     // roundings that may add up
constexpr double kTiny = 1e-37;  // where float32 loses bits: products of small gradients

// The tensors of the step, as columns of the tiles that are read.
class Columns {
 public:
  // Returns the column; -1: there is no such record.
  int add(const Record* record) {
    if (record == nullptr) return -1;
    records_.push_back(record);
    return static_cast<int>(records_.size()) - 1;
  }
  [[nodiscard]] const std::vector<const Record*>& records() const { return records_; }

 private:
  std::vector<const Record*> records_;
};

const Record* state(const ParameterStep& step, const char* name) {
  const auto found = step.states.find(name);
  return found == step.states.end() ? nullptr : found->second;
}

struct Element {
  const Tile& tile;
  std::size_t at;
  [[nodiscard]] double of(int column) const { return tile[static_cast<std::size_t>(column)][at]; }
};

// The gradient with what the decay adds to it, and the sizes of both, which may cancel.
struct Seen {
  double value = 0;
  double size = 0;
};

void judge(ReplayedTensor& tensor, double stored, double computed, double allowed) {
  const bool same = stored == computed || (std::isnan(stored) && std::isnan(computed));
  const double units = same ? 0 : std::fabs(stored - computed) / allowed;
  ++tensor.elements;
  if (!(units <= 1)) ++tensor.wrong;
  if (!(units <= tensor.worst)) tensor.worst = units;
}

// A state before the step: recorded in the iteration before, or zero where there was none yet.
struct Before {
  bool known = false;
  std::vector<Part> part;  // one, or none: zero
};

class Replayer {
 public:
  Replayer(const Formula& formula, const ParameterStep& step, const ParameterStep* earlier,
           const CopySet* addends, bool fresh)
      : formula_(formula), step_(step), earlier_(earlier), addends_(addends), fresh_(fresh) {}

  StepReplay run();

 private:
  bool choose_columns();
  int before_column(const char* name);
  bool add_addends(std::vector<Part>& parts);
  void look_at(const Element& element);
  void look_at_adam(const Element& element, const Seen& seen);
  void look_at_sgd(const Element& element, const Seen& seen);
  void look_at_parameter(const Element& element, double kept, double change, double size);

  Formula formula_;
  const ParameterStep& step_;
  const ParameterStep* earlier_;
  const CopySet* addends_;
  bool fresh_;
  StepReplay result_;
  Columns columns_;
  std::vector<const Record*> earlier_records_;
  int before_ = -1, after_ = -1, gradient_ = -1, moment_ = -1, second_ = -1, denominator_ = -1;
  int old_moment_ = -1, old_second_ = -1;  // columns of the iteration before
  std::size_t own_columns_ = 0;
  std::size_t first_addend_ = 0;  // column; all from there on are
  double unit_ = 0, state_unit_ = 0;
  ReplayedTensor parameter_, moments_, seconds_;
  double made_times_should_ = 0, should_squares_ = 0;
};

int Replayer::before_column(const char* name) {
  if (fresh_) return -1;
  const Record* record = earlier_ == nullptr ? nullptr : state(*earlier_, name);
  if (record == nullptr || step_.states.count(name) == 0 ||
      record->shape != state(step_, name)->shape) {
    result_.skipped.emplace_back(name);
    return -1;
  }
  earlier_records_.push_back(record);
  return static_cast<int>(own_columns_ + earlier_records_.size()) - 1;
}

bool Replayer::choose_columns() {
  const bool master = step_.master != nullptr || step_.master_after != nullptr;
  before_ = columns_.add(master ? step_.master : step_.value);
  after_ = columns_.add(master ? step_.master_after : step_.after);
  gradient_ = columns_.add(step_.gradient());
  if (before_ < 0 || after_ < 0) {
    result_.unknown = "the parameter was not recorded before and after the step";
    return false;
  }
  if (gradient_ < 0) {
    result_.unknown = "the gradient was not recorded";
    return false;
  }
  const bool adam = formula_.rule == Rule::adam;
  if (adam || formula_.momentum != 0) {
    moment_ = columns_.add(state(step_, adam ? "exp_avg" : "momentum_buffer"));
    second_ = adam ? columns_.add(state(step_, "exp_avg_sq")) : -1;
    denominator_ = formula_.amsgrad ? columns_.add(state(step_, "max_exp_avg_sq")) : second_;
    if (moment_ < 0 || (adam && (second_ < 0 || denominator_ < 0))) {
      result_.unknown = "the optimizer's state was not recorded after the step";
      return false;
    }
    own_columns_ = columns_.records().size();
    old_moment_ = before_column(adam ? "exp_avg" : "momentum_buffer");
    if (adam) old_second_ = before_column("exp_avg_sq");
  }
  own_columns_ = columns_.records().size();
  unit_ = epsilon(columns_.records()[static_cast<std::size_t>(after_)]->dtype);
  const int state_column = moment_ >= 0 ? moment_ : after_;
  state_unit_ = epsilon(columns_.records()[static_cast<std::size_t>(state_column)]->dtype);
  return true;
}

// `size`: of what the change was made of.
void Replayer::look_at_parameter(const Element& element, double kept, double change, double size) {
  const double before = element.of(before_);
  const double after = element.of(after_);
  const double computed = kept - change;
  const double allowed = 2 * kSlack * unit_ * size +
                         kSlack / 2 * unit_ * (std::fabs(before) + std::fabs(computed)) + kTiny;
  judge(parameter_, after, computed, allowed);
  if (after != before) result_.changed = true;
  if (std::fabs(computed - before) > kSlack * unit_ * std::fabs(before)) ++result_.should_change;
  made_times_should_ += (after - kept) * -change;
  should_squares_ += change * change;
}

void Replayer::look_at_adam(const Element& element, const Seen& seen) {
  const double moment = element.of(moment_);
  const double second = element.of(second_);
  if (fresh_ || old_moment_ >= 0) {
    const double old = fresh_ ? 0 : element.of(old_moment_);
    judge(moments_, moment, formula_.first_moment(old, seen.value),
          kSlack * state_unit_ * (std::fabs(old) + seen.size) + kTiny);
  }
  if (fresh_ || old_second_ >= 0) {
    const double old = fresh_ ? 0 : element.of(old_second_);
    judge(seconds_, second, formula_.second_moment(old, seen.value),
          kSlack * state_unit_ * (std::fabs(old) + seen.size * seen.size) + kTiny);
  }
  const double before = element.of(before_);
  const double kept = formula_.decoupled ? before * (1 - formula_.rate * formula_.decay) : before;
  const double change = formula_.adam_change(moment, element.of(denominator_));
  look_at_parameter(element, kept, change, std::fabs(change));
}

void Replayer::look_at_sgd(const Element& element, const Seen& seen) {
  double buffer = 0;
  if (formula_.momentum != 0) {
    buffer = element.of(moment_);
    if (fresh_ || old_moment_ >= 0) {
      const double old = fresh_ ? 0 : element.of(old_moment_);
      judge(moments_, buffer, formula_.buffer(old, seen.value, fresh_),
            kSlack * state_unit_ * (std::fabs(old) + seen.size) + kTiny);
    }
  }
  const double change = formula_.sgd_change(seen.value, buffer);
  const double size = formula_.rate * (seen.size + std::fabs(formula_.momentum * buffer));
  look_at_parameter(element, element.of(before_), change, std::fabs(change) + size);
}

void Replayer::look_at(const Element& element) {
  double gradient = element.of(gradient_);
  for (std::size_t i = first_addend_; i < element.tile.size(); ++i)
    gradient += element.tile[i][element.at];
  const double before = element.of(before_);
  const double decay = formula_.decoupled ? 0 : std::fabs(formula_.decay * before);
  const Seen seen{formula_.seen(gradient, before), std::fabs(gradient) + decay};
  if (formula_.rule == Rule::adam) return look_at_adam(element, seen);
  look_at_sgd(element, seen);
}

// Other ranks' parts of the gradient's sum.
bool Replayer::add_addends(std::vector<Part>& parts) {
  first_addend_ = parts.size();
  if (addends_ == nullptr) return true;
  for (const Shard& shard : *addends_) {
    const auto part = whole(*shard.segment, shard.record);
    if (!part || part->count != parts.front().count) {
      result_.unknown = "the other ranks' parts of the gradient's sum were not kept";
      return false;
    }
    parts.push_back(*part);
  }
  return true;
}

StepReplay Replayer::run() {
  if (!choose_columns()) return result_;
  auto parts = aligned(*step_.segment, columns_.records());
  if (!parts) {
    result_.unknown = "bytes were not kept, or how the pieces lie in each other is not known";
    return result_;
  }
  for (const Record* record : earlier_records_) {
    const auto part = whole(*earlier_->segment, record);
    if (!part || part->count != parts->front().count) {
      result_.unknown = "the state before the step was not kept";
      return result_;
    }
    parts->push_back(*part);
  }
  if (!add_addends(*parts)) return result_;
  for_each_tile(*parts, [this](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) look_at({tile, i});
  });
  result_.tensors["param"] = parameter_;
  const bool adam = formula_.rule == Rule::adam;
  if (moments_.elements > 0) result_.tensors[adam ? "exp_avg" : "momentum_buffer"] = moments_;
  if (seconds_.elements > 0) result_.tensors["exp_avg_sq"] = seconds_;
  if (should_squares_ > 0) result_.factor = made_times_should_ / should_squares_;
  return result_;
}

}  // namespace

std::map<std::string, ToldUpdate> told_updates(const RankInfo& rank, std::int64_t iteration) {
  std::map<std::string, ToldUpdate> told;
  const auto found = rank.updates.find(iteration);
  if (found == rank.updates.end()) return told;
  for (const UpdateGroup& group : found->second) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      told[group.parameters[i]] = {&group, group.steps[i]};
    }
  }
  return told;
}

StepReplay replay_step(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                       const std::string& parameter, const ToldUpdate& told,
                       const GradientSums& sums) {
  StepReplay failed;
  const auto formula = formula_of(*told.group, told.steps, failed.unknown);
  if (!formula) return failed;
  const ParameterSteps& steps = evidence.parameters(rank, iteration);
  const auto step = steps.find(parameter);
  if (step == steps.end() || step->second.steps > 1) {
    failed.unknown = step == steps.end() ? "the parameter was not recorded"
                                         : "the optimizer steps several times in an iteration";
    return failed;
  }
  const ParameterSteps& earlier = evidence.parameters(rank, iteration - 1);
  const auto before = earlier.find(parameter);
  const Record* gradient = step->second.gradient();
  return Replayer(*formula, step->second, before == earlier.end() ? nullptr : &before->second,
                  gradient == nullptr ? nullptr : sums.others(rank, *gradient), told.steps == 0)
      .run();
}

}  // namespace ttrace::builtin
