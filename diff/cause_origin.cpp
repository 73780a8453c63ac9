// SPDX-License-Identifier: Apache-2.0
// Causes that another tensor shows: the candidate has the value of something else. Others are
// compared on a sample, of which a wrong one fails the first element.
#include <algorithm>
#include <cmath>

#include "diff/cause.hpp"
#include "diff/cause_sample.hpp"
#include "libttrace/inference_classes.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kMostOthers = 64;  // of each kind

class Origins {
 public:
  explicit Origins(const Suspect& suspect)
      : suspect_(suspect), key_(suspect.pair->key), sample_(sample_of(suspect, suspect.region)) {
    if (suspect.update) sample_.limit = 0;  // near its value before the step it is in any case
  }

  std::optional<Cause> run() {
    before_the_step();
    if (!suspect_.update) {
      before_clipping();
      other_microbatches();
      local_gradients();
      inputs();
      other_blocks();
    }
    previous_iteration();
    return std::move(best_);
  }

 private:
  [[nodiscard]] const Side& side(bool own) const {
    return own ? *suspect_.all->candidate : *suspect_.all->reference;
  }

  static std::string whose(bool own) { return own ? "its own" : "the reference's"; }

  [[nodiscard]] const LogicalTensor* find(bool own, const Key& key) const {
    const auto found = side(own).tensors.find(key);
    return found == side(own).tensors.end() ? nullptr : &found->second;
  }

  // An equal tensor is better than a near one, and an earlier kind than a later one.
  void try_other(const LogicalTensor& other, double scale, const std::string& what) {
    if (settled_ || other.shape != suspect_.pair->candidate->shape) return;
    if (!readable_with_sums(other)) return;
    const DoubleReader values(other);
    const auto found = fit(sample_, [&](const Shape& at) { return scale * values.at(at); });
    if (!found || (best_ && !found->equal)) return;
    settled_ = found->equal;
    best_ = {"the candidate is " + suspect_.where + what, fit_text(*found), is_guess(*found)};
  }

  // Of a value before the step: one rank's share may be what was not updated, the rest be right.
  void try_where_it_differs(const Key& key, const std::string& what) {
    const LogicalTensor* other = find(true, key);
    if (best_ || other == nullptr || other->shape != suspect_.pair->candidate->shape) return;
    if (!readable_with_sums(*other)) return;
    const DoubleReader values(*other);
    const Lookup where_different = [&](const Shape& at) -> std::optional<double> {
      if (suspect_.candidate->at(at) == suspect_.reference->at(at)) return std::nullopt;
      return values.at(at);
    };
    const auto found = fit(sample_, where_different);
    if (!found || is_guess(*found)) return;
    best_ = {"the candidate is " + suspect_.where + whose(true) + " " + what, fit_text(*found)};
  }

  // What is so in the reference, too, is no mistake: identities, tied parameters, no clipping.
  [[nodiscard]] bool so_in_reference(const Key& key) const {
    const LogicalTensor* other = find(false, key);
    if (other == nullptr || other->shape != suspect_.pair->candidate->shape) return false;
    if (!readable_with_sums(*other)) return false;
    const DoubleReader values(*other);
    return agree(
        sample_.positions, sample_.reference, [&values](const Shape& at) { return values.at(at); },
        sample_.limit, sample_.size);
  }

  void try_either(bool own, const Key& key, const std::string& what) {
    const LogicalTensor* other = find(own, key);
    if (settled_ || other == nullptr || so_in_reference(key)) return;
    const double scale = own ? scale_for(key, *suspect_.all->seeds) : 1;
    try_other(*other, scale, whose(own) + " " + what);
  }

  void before_the_step() {
    if (key_.phase != Phase::step) return;
    Key before = key_;
    before.phase = Phase::param;
    for (const char* slot : {key_.slot.c_str(), "value"}) {
      before.slot = slot;
      try_either(true, before, "value before the step: it was not updated");
      try_where_it_differs(before, "value before the step where it differs: not updated there");
    }
  }

  void before_clipping() {
    if (key_.phase != Phase::grad || key_.slot != "clipped") return;
    Key reduced = key_;
    reduced.slot = "reduced";
    try_either(true, reduced, "reduced gradient: it was not clipped");
  }

  // Tries the tensors of both sides whose key `wanted` takes; `what` says what they are.
  template <class Wanted, class What>
  void try_all(const Wanted& wanted, const What& what) {
    for (const bool own : {true, false}) {
      std::size_t seen = 0;
      for (const auto& [key, tensor] : side(own).tensors) {
        if (wanted(key) && ++seen <= kMostOthers) try_either(own, key, what(key));
      }
    }
  }

  void other_microbatches() {
    if (key_.microbatch < 0) return;
    const auto wanted = [this](const Key& key) {
      Key same = key;
      same.microbatch = key_.microbatch;
      return same == key_ && key.microbatch != key_.microbatch && key.microbatch >= 0;
    };
    try_all(wanted, [](const Key& key) {
      return "value of micro-batch " + std::to_string(key.microbatch);
    });
  }

  // A reduced gradient that is what one micro-batch has contributed.
  void local_gradients() {
    if (key_.phase != Phase::grad || key_.slot != "reduced") return;
    const auto wanted = [this](const Key& key) {
      return key.phase == Phase::grad && key.slot == "local" && key.module == key_.module;
    };
    try_all(wanted, [](const Key& key) {
      return "local gradient of micro-batch " + std::to_string(key.microbatch) +
             " alone: the others were not added";
    });
  }

  void inputs() {
    if (key_.phase != Phase::forward || is_input(key_)) return;
    const auto wanted = [this](const Key& key) {
      return is_input(key) && key.phase == key_.phase && key.module == key_.module &&
             key.call == key_.call && key.microbatch == key_.microbatch;
    };
    try_all(wanted, [](const Key& key) { return key.slot + ": the module passes it through"; });
  }

  // layers.2 where layers.3 belongs.
  void other_blocks() {
    if (block_of(key_.module).empty()) return;
    const std::string name = starred(key_.module);
    const auto wanted = [&](const Key& key) {
      return key.phase == key_.phase && key.microbatch == key_.microbatch &&
             key.slot == key_.slot && key.call == key_.call && key.module != key_.module &&
             starred(key.module) == name;
    };
    try_all(wanted, [](const Key& key) { return "value of `" + key.module + "`"; });
  }

  void previous_iteration() {
    for (const bool own : {true, false}) {
      const std::optional<LogicalTensor> earlier = in_previous_iteration(own);
      if (!earlier) continue;
      try_other(*earlier, own ? suspect_.scale : 1,
                whose(own) + " value of iteration " + std::to_string(earlier->key.iteration));
    }
  }

  // Laid out as in this iteration.
  [[nodiscard]] std::optional<LogicalTensor> in_previous_iteration(bool own) const {
    const Trace& trace = *side(own).trace;
    Key key = key_;
    --key.iteration;
    const auto layout = side(own).layouts.find(key_);
    bool captured = false;
    for (const std::int64_t iteration : trace.iterations()) {
      captured = captured || iteration == key.iteration;
    }
    if (settled_ || !captured || layout == side(own).layouts.end()) return std::nullopt;
    const ShardGroups groups =
        group_shards(trace, key.iteration, number_microbatches(trace, key.iteration));
    const auto shards = groups.find(key);
    if (shards == groups.end()) return std::nullopt;
    return place_shards(key, shards->second, layout->second);
  }

  const Suspect& suspect_;
  const Key& key_;
  Sample sample_;
  std::optional<Cause> best_;
  bool settled_ = false;
};

}  // namespace

std::optional<Cause> find_origin(const Suspect& suspect) { return Origins(suspect).run(); }

}  // namespace ttrace
