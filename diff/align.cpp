// SPDX-License-Identifier: Apache-2.0
// See align.hpp.
#include "diff/align.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "diff/convert.hpp"
#include "diff/sums.hpp"

namespace ttrace {
namespace {

bool placed(const LogicalTensor& tensor) {
  return !has_problem(tensor, FindingKind::layout_unknown);
}

// Without a layout, shards can still be compared with those of the same ranks, if both sides cut
// the tensor alike: the shards one after another, as one flat tensor.
LogicalTensor one_after_another(const LogicalTensor& tensor) {
  LogicalTensor flat;
  flat.key = tensor.key;
  flat.dtype = tensor.dtype;
  std::uint64_t total = 0;
  for (const PlacedShard& shard : tensor.shards) {
    const std::uint64_t count = element_count(shard.shard.record->shape);
    flat.shards.push_back({shard.shard, {}, false});
    if (count > 0) flat.shards.back().pieces = std::vector<Piece>{{{0}, {{total}, {count}}}};
    total += count;
  }
  flat.shape = {total};
  flat.layout.dims.resize(1);
  return flat;
}

// The part of it that has the other run's shape. As it is where pieces are runs of a flattened
// shard.
LogicalTensor without_padding(const LogicalTensor& tensor, const Shape& shape) {
  if (shape.size() != tensor.shape.size()) return tensor;
  LogicalTensor part = tensor;
  part.shape = shape;
  const Box wanted{Shape(shape.size(), 0), shape};
  for (PlacedShard& placed : part.shards) {
    std::vector<Piece> kept;
    for (const Piece& piece : placed.pieces) {
      if (piece.local_start.size() != shape.size()) return tensor;
      const auto common = intersection(piece.global, wanted);
      if (common && volume(*common) > 0) kept.push_back({piece.local_start, *common});
    }
    placed.pieces = std::move(kept);
  }
  return part;
}

bool cut_alike(const LogicalTensor& reference, const LogicalTensor& candidate) {
  return std::equal(reference.shards.begin(), reference.shards.end(), candidate.shards.begin(),
                    candidate.shards.end(), [](const PlacedShard& one, const PlacedShard& other) {
                      return one.shard.rank == other.shard.rank &&
                             one.shard.record->shape == other.shard.record->shape &&
                             one.shard.record->dtype == other.shard.record->dtype;
                    });
}

class Aligner {
 public:
  Aligner(Side& reference, Side& candidate, const Flow& flow, const std::vector<Finding>& findings,
          const std::string& filter)
      : reference_(reference), candidate_(candidate), flow_(flow), filter_(filter) {
    for (const Finding& finding : findings) {
      explained_[finding.message] = &finding;
    }
  }

  Alignment run() {
    for (auto& [key, tensor] : reference_.tensors) visit_reference(key, tensor);
    for (auto& [key, tensor] : candidate_.tensors) visit_candidate(key, tensor);
    std::stable_sort(result_.pairs.begin(), result_.pairs.end(),
                     [](const Pair& one, const Pair& other) { return one.key < other.key; });
    link_aliases();
    one_sided(FindingKind::missing, std::move(missing_), reference_, candidate_);
    one_sided(FindingKind::unexpected, std::move(unexpected_), candidate_, reference_);
    for (auto& [reason, finding] : unknown_) result_.findings.push_back(std::move(finding));
    count_promises(reference_, filter_, result_);
    return std::move(result_);
  }

 private:
  void visit_reference(const Key& key, LogicalTensor& tensor) {
    if (!matches(filter_, key)) return;
    const auto partner = candidate_.tensors.find(key);
    const std::optional<Key> target = alias_target(key, reference_.groups.at(key));
    if (is_input(key) && target) {
      const bool edge = partner == candidate_.tensors.end() ||
                        alias_target(key, candidate_.groups.at(key)) == target;
      if (edge) {
        ++result_.edges;
        return;
      }
    }
    const bool known = partner == candidate_.tensors.end()
                           ? is_known_input(key, reference_) || is_an_outputs(key, candidate_)
                           : is_passed_on(key);
    if (known) {
      ++result_.edges;
      return;
    }
    // Whether activations are computed a second time is the program's choice.
    if (key.phase != Phase::recompute) ++result_.expected[static_cast<std::size_t>(key.phase)];
    if (partner == candidate_.tensors.end()) {
      if (key.phase != Phase::recompute) missing_.push_back(key);
      return;
    }
    if (key.phase == Phase::recompute) ++result_.expected[static_cast<std::size_t>(key.phase)];
    pair_up(key, tensor, partner->second);
  }

  void visit_candidate(const Key& key, LogicalTensor& tensor) {
    if (!matches(filter_, key) || reference_.tensors.count(key) != 0) return;
    if ((is_input(key) && alias_target(key, candidate_.groups.at(key))) ||
        is_known_input(key, candidate_) || is_an_outputs(key, reference_)) {
      ++result_.edges;
      return;
    }
    if (key.phase == Phase::recompute) {
      Key first = key;
      first.phase = Phase::forward;
      const auto forward = reference_.tensors.find(first);
      if (forward == reference_.tensors.end()) return;  // its forward tensor is reported
      ++result_.expected[static_cast<std::size_t>(key.phase)];
      pair_up(key, forward->second, tensor);
      if (!result_.pairs.empty() && result_.pairs.back().key == key) {
        result_.pairs.back().note = "recomputed; compared with the reference's forward pass";
      }
      return;
    }
    unexpected_.push_back(key);
  }

  // An input that is some tensor recorded before, maybe in another micro-batch: of the model alone
  // what it is given counts as such.
  static bool is_known_input(const Key& key, const Side& side) {
    const std::vector<Shard>& shards = side.groups.at(key);
    return is_input(key) && key.module != kRootModule &&
           std::all_of(shards.begin(), shards.end(),
                       [](const Shard& shard) { return shard.record->alias_of != kNotAlias; });
  }

  // The gradient of an input that on this side is some module's output: it is that output's there.
  // (A pipeline stage receives what it does not know as an output.)
  static bool is_an_outputs(const Key& key, const Side& side) {
    if (key.phase != Phase::backward || key.slot.rfind("grad_input", 0) != 0) return false;
    Key input = key;
    input.phase = Phase::forward;
    input.slot = output_slot(key.slot);
    const auto found = side.groups.find(input);
    return found == side.groups.end() || alias_target(input, found->second).has_value();
  }

  // The gradient of what a module returns as it got it, from another module. It is the sum over all
  // who use the tensor after the place where autograd sees a new one, and wrappers (FSDP's hooks)
  // add such places. The module that made the tensor has its gradient.
  bool is_passed_on(const Key& key) const {
    if (key.phase != Phase::backward || is_input(key)) return false;
    Key output = key;
    output.phase = Phase::forward;
    output.slot = output_slot(key.slot);
    const auto theirs = reference_.groups.find(output);
    const auto ours = candidate_.groups.find(output);
    if (theirs == reference_.groups.end() || ours == candidate_.groups.end()) return false;
    std::optional<Key> source = alias_target(output, theirs->second);
    if (!source || alias_target(output, ours->second) != source) return false;
    if (source->phase != Phase::forward || is_input(*source)) return false;
    if (lies_in(source->module, key.module)) return false;
    source->phase = Phase::backward;
    source->slot.insert(0, "grad_");
    return reference_.groups.count(*source) != 0 && candidate_.groups.count(*source) != 0;
  }

  void pair_up(const Key& key, LogicalTensor& reference, LogicalTensor& candidate) {
    std::string note;
    if (!placed(reference) || !placed(candidate)) {
      if (!cut_alike(reference, candidate)) return not_comparable(key, reference, candidate);
      reference = one_after_another(reference);
      candidate = one_after_another(candidate);
      note = "the layout is unknown and the same on both sides; compared rank by rank";
    }
    const bool padded = reference.shape != candidate.shape && is_padded(key);
    if (padded) {
      note = "the candidate's is filled up from " + text(reference.shape) + " to " +
             text(candidate.shape) + "; what was added is not compared";
      candidate = without_padding(candidate, reference.shape);
    }
    if (reference.shape != candidate.shape) {
      return add(FindingKind::shape_differs, key,
                 "shape " + text(candidate.shape) + " instead of " + text(reference.shape));
    }
    if (!common_type(reference.dtype, candidate.dtype)) {
      return add(FindingKind::dtype_differs, key,
                 std::string(name_of(candidate.dtype)) + " instead of " +
                     std::string(name_of(reference.dtype)));
    }
    result_.pairs.push_back({key, &reference, &candidate, kNoPair, std::move(note), padded});
  }

  bool is_padded(const Key& key) const {
    const auto decision = candidate_.layouts.find(key);
    return decision != candidate_.layouts.end() && decision->second.padded;
  }

  // One finding for all tensors that lack a layout for the same reason. Where inference has
  // reported that reason itself, nothing needs to be added.
  void not_comparable(const Key& key, const LogicalTensor& reference,
                      const LogicalTensor& candidate) {
    const bool ours = placed(reference);
    const LogicalTensor& unplaced = ours ? candidate : reference;
    const Side& side = ours ? candidate_ : reference_;
    const auto decision = side.layouts.find(key);
    std::string reason = decision == side.layouts.end() ? "" : decision->second.reason;
    for (const Finding& problem : unplaced.problems) {
      const bool cause = problem.kind == FindingKind::layout_unknown;
      if (reason.empty() && cause) reason = problem.message;
    }
    for (const auto& [message, finding] : explained_) {
      if (reason.find(message) != std::string::npos) return;
    }
    const std::string where = ours ? "candidate" : "reference";
    Finding& finding = unknown_[where + ": " + reason];
    if (finding.message.empty()) {
      finding.kind = FindingKind::layout_unknown;
      finding.key = key;
      finding.message =
          "not comparable: the layout of the " + where + "'s shards is unknown: " + reason;
      finding.evidence.emplace_back("tensors", "0");
    }
    if (flow_.place(key) < flow_.place(finding.key)) finding.key = key;
    std::string& count = finding.evidence.front().second;
    count = std::to_string(std::stoull(count) + 1);
  }

  void add(FindingKind kind, const Key& key, std::string message) {
    Finding finding;
    finding.kind = kind;
    finding.key = key;
    finding.message = std::move(message);
    result_.findings.push_back(std::move(finding));
  }

  static std::string text(const Shape& shape) {
    std::string text;
    for (const std::uint64_t extent : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(extent);
    }
    return "[" + text + "]";
  }

  // Two aliases of one tensor on both sides have that tensor's result.
  void link_aliases() {
    std::map<Key, std::size_t> index;
    for (std::size_t i = 0; i < result_.pairs.size(); ++i) index[result_.pairs[i].key] = i;
    for (Pair& pair : result_.pairs) {
      const auto own = candidate_.groups.find(pair.key);
      const auto theirs = reference_.groups.find(pair.key);
      if (own == candidate_.groups.end() || theirs == reference_.groups.end()) continue;
      const std::optional<Key> target = alias_target(pair.key, theirs->second);
      if (!target || alias_target(pair.key, own->second) != target) continue;
      const auto found = index.find(*target);
      if (found == index.end() || !pair.note.empty()) continue;
      if (result_.pairs[found->second].reference->shape == pair.reference->shape) {
        pair.same_as = found->second;
      }
    }
  }

  // No hook runs inside a region that one of the runs compiled. Its parameters are seen all the
  // same.
  void leave_to_compiler(FindingKind kind, std::vector<Key>& keys, const Side& lacking) {
    std::map<std::string, std::string> regions;  // and why they are not seen
    for (const RankInfo& rank : lacking.trace->ranks()) {
      for (const Event& event : rank.events) {
        if (event.what == "compiled") regions.emplace(event.where, event.why);
      }
    }
    const auto compiled = [&](const Key& key) {
      if (key.phase != Phase::forward && key.phase != Phase::backward) return false;
      const auto around = std::find_if(regions.begin(), regions.end(), [&key](const auto& region) {
        return region.first == kRootModule || lies_in(key.module, region.first);
      });
      if (around == regions.end()) return false;
      if (kind == FindingKind::missing) {
        result_.not_captured.push_back({key, "compiled in the candidate: " + around->second});
      }
      return true;
    };
    keys.erase(std::remove_if(keys.begin(), keys.end(), compiled), keys.end());
  }

  void one_sided(FindingKind kind, std::vector<Key> keys, const Side& owner, const Side& lacking) {
    leave_to_compiler(kind, keys, lacking);
    const OneSided group{kind, std::move(keys), &lacking.groups, owner.trace, lacking.trace};
    for (Finding& finding : collapse(group, flow_)) result_.findings.push_back(std::move(finding));
  }

  Side& reference_;
  Side& candidate_;
  const Flow& flow_;
  const std::string& filter_;
  std::map<std::string, const Finding*> explained_;  // by message
  std::map<std::string, Finding> unknown_;           // by reason
  std::vector<Key> missing_, unexpected_;
  Alignment result_;
};

}  // namespace

bool matches(const std::string& filter, const Key& key) {
  if (filter.empty()) return true;
  const auto fits = [&filter](const std::string& text) {
    return fnmatch(filter.c_str(), text.c_str(), 0) == 0;
  };
  return fits(to_string(key)) ||
         fits(std::string(name_of(key.phase)) + "/" + key.module + "/" + key.slot);
}

Alignment align(Side& reference, Side& candidate, const Flow& flow,
                const std::vector<Finding>& findings, const std::string& filter) {
  return Aligner(reference, candidate, flow, findings, filter).run();
}

}  // namespace ttrace
