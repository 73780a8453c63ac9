// SPDX-License-Identifier: Apache-2.0
// See order.hpp.
#include "diff/order.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace ttrace {
namespace {

// Tensors of the model that one side lacks explain what comes after; gradients and states that one
// side lacks may be explained by what comes before.
int precedence(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::incomplete_trace:
      return 0;
    case FindingKind::missing:
    case FindingKind::unexpected:
      return finding.key.phase == Phase::backward || finding.key.phase == Phase::grad ||
                     finding.key.phase == Phase::step
                 ? 3
                 : 1;
    case FindingKind::different_data:
      return 2;
    default:
      return 3;
  }
}

// Errors in units of what is normal for the tensor grow by less than this in one module, whatever
// they look like: a larger step is an error of its own.
constexpr double kExplainedGrowth = 8;

// What is known of each tensor: it agrees, it diverged (and how far), or nothing.
class State {
 public:
  State(const Alignment& alignment, const std::vector<Outcome>& outcomes) {
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Pair& pair = alignment.pairs[i];
      const std::size_t at = pair.same_as == kNoPair ? i : pair.same_as;
      const Outcome& outcome = outcomes[at];
      clean_[pair.key] = outcome.compared && outcome.findings.empty();
      if (outcome.compared && outcome.limit > 0) excess_[pair.key] = outcome.error / outcome.limit;
    }
  }
  [[nodiscard]] bool known(const Key& key) const { return clean_.count(key) != 0; }
  [[nodiscard]] bool clean(const Key& key) const {
    const auto found = clean_.find(key);
    return found != clean_.end() && found->second;
  }
  // The error in units of the limit, nullopt where no number tells.
  [[nodiscard]] std::optional<double> excess(const Key& key) const {
    const auto found = excess_.find(key);
    return found == excess_.end() ? std::nullopt : std::optional(found->second);
  }
  // Of all tensors of that phase and module (exactly, any micro-batch, call and slot): whether
  // there are any, and all agree.
  [[nodiscard]] bool all_clean(const Key& like, const std::string& slot_prefix) const {
    bool any = false;
    Key first = like;
    first.module.clear();
    first.microbatch = -1;
    first.slot.clear();
    for (auto at = clean_.lower_bound(first); at != clean_.end() && at->first.phase == like.phase;
         ++at) {
      if (at->first.module != like.module || at->first.slot.rfind(slot_prefix, 0) != 0) continue;
      if (!at->second) return false;
      any = true;
    }
    return any;
  }

 private:
  std::map<Key, bool> clean_;
  std::map<Key, double> excess_;
};

class Inheritance {
 public:
  Inheritance(const Flow& flow, const Alignment& alignment, const std::vector<Outcome>& outcomes)
      : flow_(flow), alignment_(alignment), state_(alignment, outcomes) {}

  // Whether everything that this tensor is computed from is known, and agrees or is too near to
  // explain the error.
  [[nodiscard]] bool introduced(const Finding& finding,
                                const std::vector<OrderedFinding>& earlier) const {
    const Key& key = finding.key;
    const bool again = std::any_of(earlier.begin(), earlier.end(),
                                   [&key](const auto& other) { return other.finding.key == key; });
    if (again) return false;  // the same tensor is wrong in a second way
    switch (key.phase) {
      case Phase::param:
        return true;
      case Phase::forward:
        return !is_input(key) && forward_introduced(key, earlier);
      case Phase::grad:
        return gradient_introduced(key, earlier);
      case Phase::step:
        return step_introduced(key);
      case Phase::recompute:
      case Phase::backward:  // a consumer may be an operation between modules, which no row shows
      case Phase::comm:
        return false;
    }
    return false;
  }

 private:
  bool inputs_clean(const Key& output) const {
    const std::vector<Key>& inputs = flow_.inputs_of(output);
    return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(),
                                          [this](const Key& input) { return state_.clean(input); });
  }

  // Every input is known, and none is far enough off for what became of them.
  bool inputs_explain_too_little(const Key& output) const {
    const std::vector<Key>& inputs = flow_.inputs_of(output);
    const std::optional<double> excess = state_.excess(output);
    if (inputs.empty() || !excess) return false;
    return std::all_of(inputs.begin(), inputs.end(), [&](const Key& input) {
      const std::optional<double> theirs = state_.excess(input);
      return theirs && *excess > kExplainedGrowth * std::max(1.0, *theirs);
    });
  }

  bool forward_introduced(const Key& key, const std::vector<OrderedFinding>& earlier) const {
    for (const OrderedFinding& other : earlier) {
      const Key& theirs = other.finding.key;
      const bool before = theirs.phase == Phase::param || theirs.phase == Phase::forward;
      const bool own_input = theirs.module == key.module && is_input(theirs);
      if (before && !own_input && lies_in(theirs.module, key.module)) return false;
    }
    return inputs_clean(key) || inputs_explain_too_little(key);
  }

  // The gradient that reaches the module, and what the module was given.
  bool gradient_introduced(const Key& key, const std::vector<OrderedFinding>& earlier) const {
    if (key.slot != "reduced" && key.slot != "local") {
      // Clipped gradients and the norm are made of all reduced gradients.
      return std::none_of(earlier.begin(), earlier.end(), [](const OrderedFinding& other) {
        return other.place.stage == Stage::reduction || other.place.stage == Stage::clip;
      });
    }
    Key backward = key;
    backward.phase = Phase::backward;
    backward.module = module_of(key);
    if (!state_.all_clean(backward, "grad_output")) return false;
    for (const Pair& pair : alignment_.pairs) {
      const Key& other = pair.key;
      const bool output =
          other.phase == Phase::forward && other.module == backward.module && !is_input(other);
      if (output && !inputs_clean(other)) return false;
    }
    return true;
  }

  bool step_introduced(const Key& key) const {
    Key before = key;
    before.phase = Phase::grad;
    before.slot = "reduced";
    if (!state_.clean(before)) return false;
    before.slot = "clipped";
    if (state_.known(before) && !state_.clean(before)) return false;
    before.phase = Phase::param;
    before.slot = "value";
    if (!state_.clean(before)) return false;
    if (key.slot != "param" && key.slot != "master") return true;
    return std::all_of(alignment_.pairs.begin(), alignment_.pairs.end(), [&](const Pair& pair) {
      const bool state = pair.key.phase == Phase::step && pair.key.module == key.module &&
                         pair.key.slot != "param" && pair.key.slot != "master";
      return !state || state_.clean(pair.key);
    });
  }

  const Flow& flow_;
  const Alignment& alignment_;
  State state_;
};

}  // namespace

std::vector<OrderedFinding> order_findings(std::vector<Finding> findings, const Flow& flow,
                                           const Alignment& alignment,
                                           const std::vector<Outcome>& outcomes) {
  std::vector<OrderedFinding> ordered;
  for (Finding& finding : findings) {
    const Place place = finding.key.module.empty() ? Place{} : flow.place(finding.key);
    ordered.push_back({std::move(finding), place, false});
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const OrderedFinding& one, const OrderedFinding& other) {
                     return std::make_tuple(precedence(one.finding), one.place) <
                                std::make_tuple(precedence(other.finding), other.place) ||
                            (precedence(one.finding) == precedence(other.finding) &&
                             one.place == other.place && one.finding.key < other.finding.key);
                   });
  const Inheritance inheritance(flow, alignment, outcomes);
  std::vector<OrderedFinding> earlier;
  for (OrderedFinding& entry : ordered) {
    const bool value = precedence(entry.finding) == 3;
    entry.inherited = value && !earlier.empty() && !inheritance.introduced(entry.finding, earlier);
    earlier.push_back(entry);
  }
  return ordered;
}

}  // namespace ttrace
