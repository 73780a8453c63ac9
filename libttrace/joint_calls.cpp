// SPDX-License-Identifier: Apache-2.0
// See joint_calls.hpp.
#include "libttrace/joint_calls.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "libttrace/inference_classes.hpp"
#include "libttrace/joint_content.hpp"
#include "libttrace/joint_parts.hpp"
#include "libttrace/proof.hpp"
#include "libttrace/shape_fit.hpp"

namespace ttrace {
namespace {

bool is_activation(Phase phase) {
  return phase == Phase::forward || phase == Phase::recompute || phase == Phase::backward;
}

using Class = std::vector<Key>;  // the candidate's keys

class JointFinder {
 public:
  JointFinder(const LogicalTensors& reference, const MicrobatchNumbers& numbers,
              const std::vector<LayoutRule>& rules, ShardGroups& candidate)
      : candidate_(candidate),
        declarations_(rules),
        routing_(reference, candidate, rules),
        sizes_(reference, numbers, routing_) {
    for (const auto& [turn, number] : numbers) at_turn_[turn.second].insert(number);
  }

  JointCalls run() {
    for (const auto& [key, shards] : candidate_) {
      for (const Shard& shard : shards) places_.emplace(shard.rank, shard.where);
    }
    patterns_ = joint_patterns(places_);
    if (!routing_.empty()) axes_ = joint_axes(places_);
    axes_.insert(axes_.begin(), "");
    mesh_axes_ = mesh_axes(places_);
    for (const Class& keys : classes()) {
      if (std::all_of(keys.begin(), keys.end(), [this](const Key& key) { return fits(key); })) {
        continue;
      }
      if (take_joint(keys)) continue;
      excuse_all(calls_of(keys));
      report_contradicted(keys);
    }
    for (const Key& key : taken_) candidate_.erase(key);
    return finish();
  }

 private:
  [[nodiscard]] std::vector<Class> classes() const {
    std::map<std::tuple<Phase, std::string, std::string>, Class> by_name;
    for (const auto& [key, shards] : candidate_) {
      if (!is_activation(key.phase) || key.microbatch < 0) continue;
      by_name[{key.phase, starred(key.module), key.slot}].push_back(key);
    }
    std::vector<Class> found;
    for (auto& [name, keys] : by_name) found.push_back(std::move(keys));
    return found;
  }

  // Whether some layout gives the shards their shapes, or somebody says which.
  [[nodiscard]] bool fits(const Key& key) {
    const LogicalTensor* reference = sizes_.reference_of(key);
    if (reference == nullptr) return false;
    if (declarations_.of(key, candidate_.at(key)).layout) return true;
    const ShapeFit& fit = shapes_.of(candidate_.at(key), reference->shape);
    return fit.exact || (fit.ragged && !contradicted(key, *fit.ragged));
  }

  // Pieces that add up, but not those that the routing before them makes.
  [[nodiscard]] bool contradicted(const Key& key, const Layout& layout) const {
    for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
      const std::vector<Cut>& cuts = layout.dims[dim];
      if (cuts.empty() || cuts.front().kind != CutKind::ragged) continue;
      const std::uint64_t rows = sizes_.reference_of(key)->shape[dim];
      const RoutingChoice* choice = routing_.before(key, rows);
      if (choice == nullptr || choice->total != rows) continue;
      const std::size_t ranks = cuts.front().sections.size();
      if (choice->counts.size() % ranks != 0) continue;
      const std::size_t run = choice->counts.size() / ranks;
      for (std::size_t column = 0; column < choice->counts.size(); column += run) {
        std::uint64_t sent = 0;
        for (std::size_t i = 0; i < run; ++i) sent += choice->counts[column + i];
        if (sent != cuts.front().sections[column / run]) return true;
      }
    }
    return false;
  }

  // By the number that the ranks themselves give the micro-batch.
  [[nodiscard]] std::vector<JointCall> calls_of(const Class& keys) const {
    std::map<Key, JointCall> calls;
    for (const Key& key : keys) {
      for (const Shard& shard : candidate_.at(key)) {
        Key own = key;
        own.microbatch = shard.record->key.microbatch;
        JointCall& call = calls[own];
        call.key = own;
        call.shards.push_back(shard);
      }
    }
    std::vector<JointCall> found;
    for (auto& [key, call] : calls) found.push_back(std::move(call));
    return found;
  }

  // The micro-batches of all ranks at that time.
  [[nodiscard]] std::vector<Key> keys_at_turn(const Key& own) const {
    std::vector<Key> keys;
    for (const std::int32_t number : at_turn_.at(own.microbatch)) {
      keys.push_back(own);
      keys.back().microbatch = number;
    }
    return keys;
  }

  [[nodiscard]] bool routed_elsewhere(const JointCall& call) const {
    for (const Key& key : keys_at_turn(call.key)) {
      const LogicalTensor* reference = sizes_.reference_of(key);
      if (reference == nullptr) continue;
      for (const std::uint64_t rows : reference->shape) {
        const RoutingChoice* choice = routing_.before(key, rows);
        if (choice != nullptr && choice->differing > 0) return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool several_at_once() const {
    return std::any_of(at_turn_.begin(), at_turn_.end(),
                       [](const auto& turn) { return turn.second.size() > 1; });
  }

  [[nodiscard]] std::optional<JointDims> dims_of(const Class& keys) const {
    std::vector<std::pair<const Shard*, const LogicalTensor*>> shards;
    for (const Key& key : keys) {
      const LogicalTensor* reference = sizes_.reference_of(key);
      if (reference == nullptr) continue;
      for (const Shard& shard : candidate_.at(key)) shards.emplace_back(&shard, reference);
    }
    return joint_dims(shards);
  }

  bool take_joint(const Class& keys) {
    const std::optional<JointDims> dims = dims_of(keys);
    if (!dims || !several_at_once()) return false;
    const std::vector<JointCall> calls = calls_of(keys);
    for (JointPattern& pattern : patterns_) {
      for (const std::string& axis : axes_) {
        pattern.axis = axis;
        if (!try_pattern(calls, *dims, pattern)) continue;
        taken_.insert(keys.begin(), keys.end());
        return true;
      }
    }
    return false;
  }

  // A pattern that explains all sizes of a class.
  struct Trial {
    JointParts parts;
    std::vector<JointCall> unexplained;  // their rows have a routing that differs
    Layout layout;
  };

  // Sizes decide. What they leave open content does; where it does not, what agrees most stands,
  // and the comparison says what is wrong.
  bool try_pattern(const std::vector<JointCall>& calls, const JointDims& dims,
                   JointPattern& pattern) {
    std::optional<Trial> chosen;
    double best = 0;
    std::vector<std::optional<JointCut>> cuts;
    if (!dims.cut) cuts.emplace_back();
    for (const auto& [axis, size] : dims.cut ? mesh_axes_ : MeshAxes()) {
      if (size == dims.shares) cuts.push_back(JointCut{*dims.cut, axis});
    }
    for (const std::optional<JointCut>& cut : cuts) {
      pattern.cut = cut;
      std::optional<Trial> trial = try_sizes(calls, dims.rows, pattern);
      if (!trial) continue;
      const double share = find_addends(sizes_, trial->parts, mesh_axes_, trial->layout);
      if (chosen && share <= best) continue;
      chosen = std::move(trial);
      best = share;
    }
    pattern.cut.reset();
    if (!chosen) return false;
    for (auto& [key, list] : chosen->parts) accept(key, std::move(list), chosen->layout);
    excuse_all(chosen->unexplained);
    return true;
  }

  [[nodiscard]] std::optional<Trial> try_sizes(const std::vector<JointCall>& calls, std::size_t dim,
                                               const JointPattern& pattern) const {
    Trial trial;
    bool joint = false;
    for (const JointCall& call : calls) {
      std::optional<JointParts> parts = sizes_.take_apart(call, dim, pattern);
      if (!parts) {
        if (!routed_elsewhere(call)) return std::nullopt;
        trial.unexplained.push_back(call);
        continue;
      }
      for (const Shard& shard : call.shards) {
        joint = joint || sizes_.together(shard.rank, call.key.microbatch, pattern).size() > 1;
      }
      for (auto& [key, list] : *parts) {
        std::vector<PlacedShard>& known = trial.parts[key];
        known.insert(known.end(), list.begin(), list.end());
      }
    }
    if (!joint) return std::nullopt;
    trial.layout.dims.resize(calls.front().shards.front().record->shape.size());
    trial.layout.source = "inferred";
    if (!pattern.axis.empty()) {
      trial.layout.dims[dim] = {{pattern.axis, CutKind::ragged, 1, {}}};
    }
    if (pattern.cut)
      trial.layout.dims[pattern.cut->dim] = {{pattern.cut->axis, CutKind::shard, 1, {}}};
    return trial;
  }

  void accept(const Key& key, std::vector<PlacedShard> parts, const Layout& layout) {
    LayoutDecision& decision = result_.decisions[key];
    decision.parts = true;
    decision.global_shape = sizes_.reference_of(key)->shape;
    decision.layout = layout;
    decision.reason = "parts of calls for several micro-batches";
    for (const PlacedShard& placed : parts) result_.groups[key].push_back(placed.shard);
    LogicalTensor& tensor = result_.tensors[key];
    tensor.key = key;
    tensor.shape = decision.global_shape;
    tensor.layout = decision.layout;
    tensor.shards = std::move(parts);
    prove(tensor);
  }

  // What has other shapes only because the ranks got other rows.
  void excuse_all(const std::vector<JointCall>& calls) {
    for (const JointCall& call : calls) {
      if (!routed_elsewhere(call)) continue;
      for (const Key& key : keys_at_turn(call.key)) {
        const auto own = candidate_.find(key);
        if (sizes_.reference_of(key) == nullptr || result_.tensors.count(key) != 0) continue;
        if (own != candidate_.end() && taken_.count(key) == 0 && fits(key)) continue;
        if (own != candidate_.end()) taken_.insert(key);
        excused_.emplace(key, own == candidate_.end() ? call.shards : own->second);
      }
    }
  }

  // Equal routing, but the ranks hold other rows than it sends them.
  void report_contradicted(const Class& keys) {
    Finding finding;
    std::vector<Key> wrong;
    for (const Key& key : keys) {
      const LogicalTensor* reference = sizes_.reference_of(key);
      if (reference == nullptr || taken_.count(key) != 0 || fits(key)) continue;
      const ShapeFit& fit = shapes_.of(candidate_.at(key), reference->shape);
      if (!fit.exact && fit.ragged) wrong.push_back(key);
    }
    if (wrong.empty()) return;
    finding.kind = FindingKind::shape_differs;
    finding.key = wrong.front();
    finding.message = "the ranks hold other numbers of rows than the routing sends them:";
    for (const Shard& shard : candidate_.at(wrong.front())) {
      finding.message +=
          " " + bracketed(shard.record->shape) + " on rank " + std::to_string(shard.rank);
      finding.ranks.push_back(shard.rank);
    }
    finding.evidence = {{"tensors", std::to_string(wrong.size())}};
    for (const Key& key : wrong) leave_out(key, candidate_.at(key), finding.message);
    taken_.insert(wrong.begin(), wrong.end());
    result_.findings.push_back(std::move(finding));
  }

  void leave_out(const Key& key, std::vector<Shard> shards, const std::string& why) {
    LayoutDecision& decision = result_.decisions[key];
    decision.known = false;
    decision.reason = why;
    result_.tensors[key] = place_shards(key, shards, decision);
    result_.groups[key] = std::move(shards);
  }

  JointCalls finish() {
    const RoutingChoice* first = routing_.first_differing();
    if (excused_.empty() || first == nullptr) return std::move(result_);
    Finding finding;
    finding.kind = FindingKind::layout_unknown;
    finding.message = "not comparable: rows were routed elsewhere than in the reference, " +
                      std::to_string(first->differing) + " of " + std::to_string(first->rows) +
                      " in " + to_string(first->key);
    finding.evidence = {{"tensors", std::to_string(excused_.size())}};
    std::optional<std::uint64_t> sequence;
    for (auto& [key, shards] : excused_) {
      const LogicalTensor& reference = *sizes_.reference_of(key);
      const std::uint64_t own = reference.shards.front().shard.record->sequence;
      if (!sequence || own < *sequence) finding.key = key;
      sequence = std::min(own, sequence.value_or(own));
      leave_out(key, std::move(shards), finding.message);
    }
    result_.findings.push_back(std::move(finding));
    return std::move(result_);
  }

  ShardGroups& candidate_;
  Declarations declarations_;
  Routing routing_;
  JointSizes sizes_;
  std::map<std::int32_t, std::set<std::int32_t>> at_turn_;  // own number -> micro-batches
  std::map<std::int32_t, Coordinates> places_;
  std::vector<JointPattern> patterns_;
  std::vector<std::string> axes_;
  MeshAxes mesh_axes_;
  ShapeFits shapes_;
  std::set<Key> taken_;
  std::map<Key, std::vector<Shard>> excused_;
  JointCalls result_;
};

// The usual case, for which nothing else is read.
bool all_fit(const LogicalTensors& reference, const ShardGroups& candidate) {
  ShapeFits shapes;
  return std::all_of(candidate.begin(), candidate.end(), [&](const auto& group) {
    const auto& [key, shards] = group;
    const auto known = reference.find(key);
    return !is_activation(key.phase) || known == reference.end() ||
           shapes.of(shards, known->second.shape).exact;
  });
}

// A single rank has all rows, however many.
bool on_one_rank(const ShardGroups& groups) {
  return std::all_of(groups.begin(), groups.end(), [&groups](const auto& group) {
    return std::all_of(group.second.begin(), group.second.end(), [&groups](const Shard& shard) {
      return shard.rank == groups.begin()->second.front().rank;
    });
  });
}

}  // namespace

JointCalls take_joint_calls(const LogicalTensors& reference, const MicrobatchNumbers& numbers,
                            const std::vector<LayoutRule>& rules, ShardGroups& candidate) {
  if (all_fit(reference, candidate) || on_one_rank(candidate)) return {};
  return JointFinder(reference, numbers, rules, candidate).run();
}

Assembled assemble(const LogicalTensors& reference, const MicrobatchNumbers& numbers,
                   const std::vector<LayoutRule>& rules, ShardGroups& candidate) {
  JointCalls joint = take_joint_calls(reference, numbers, rules, candidate);
  Inference inference = infer_layouts(reference, candidate, rules);
  Assembled assembled;
  assembled.decisions = std::move(inference.decisions);
  assembled.tensors = place_all(candidate, assembled.decisions);
  assembled.findings = std::move(inference.findings);
  candidate.merge(joint.groups);
  assembled.decisions.merge(joint.decisions);
  assembled.tensors.merge(joint.tensors);
  assembled.findings.insert(assembled.findings.end(), joint.findings.begin(), joint.findings.end());
  return assembled;
}

}  // namespace ttrace
