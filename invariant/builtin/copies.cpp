// SPDX-License-Identifier: Apache-2.0
// See copies.hpp.
#include "invariant/builtin/copies.hpp"

#include <algorithm>
#include <numeric>

#include "invariant/builtin/pipeline_stages.hpp"
#include "libttrace/microbatch_inputs.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

bool tells(const Record& record) {
  const bool constant =
      record.kind != RecordKind::hash && record.statistics.min == record.statistics.max;
  return element_count(record.shape) > 1 && !constant;
}

// Axes on which two ranks stand apart.
std::vector<std::string> axes_between(const Coordinates& one, const Coordinates& other) {
  std::vector<std::string> axes;
  for (const auto& [name, position] : one) {
    if (position_on(other, name).coord != position.coord) axes.push_back(name);
  }
  return axes;
}

// Sets of shards that are joined step by step.
class Joined {
 public:
  explicit Joined(std::size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::size_t find(std::size_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }
  void join(std::size_t one, std::size_t other) { parent_[find(one)] = find(other); }

 private:
  std::vector<std::size_t> parent_;
};

bool declares(const std::vector<Shard>& shards) {
  return std::any_of(shards.begin(), shards.end(),
                     [](const Shard& shard) { return shard.record->layout != kNoLayout; });
}

std::vector<CopySet> sets_of(const LogicalTensor& tensor) {
  std::map<PlaceId, CopySet> places;
  for (const PlacedShard& placed : tensor.shards) {
    places[place_id(placed, tensor.layout)].push_back(placed.shard);
  }
  std::vector<CopySet> sets;
  for (auto& [place, set] : places) sets.push_back(std::move(set));
  return sets;
}

std::vector<CopySet> addends_of(const LogicalTensor& tensor) {
  std::map<std::vector<std::uint64_t>, std::map<std::vector<std::uint64_t>, Shard>> parts;
  std::size_t most = 0;
  for (const PlacedShard& placed : tensor.shards) {
    const PlaceId id = place_id(placed, tensor.layout);
    parts[id.elements].emplace(id.addend, placed.shard);
    most = std::max(most, parts[id.elements].size());
  }
  std::vector<CopySet> addends;
  if (most < 2) return addends;
  for (auto& [elements, by_addend] : parts) {
    CopySet& set = addends.emplace_back();
    for (auto& [addend, shard] : by_addend) set.push_back(std::move(shard));
  }
  return addends;
}

// Axes over which a declared layout cuts; of a flat piece all that are larger than 1.
std::set<std::string> cut_axes(const Layout& layout, const Coordinates& where) {
  std::set<std::string> axes;
  for (const auto& [name, position] : where) {
    if (layout.flat || cuts_over(layout, name)) axes.insert(name);
  }
  return axes;
}

}  // namespace

CopyFinder::CopyFinder(const Evidence& evidence) : evidence_(evidence) {
  const std::int64_t first = evidence.iterations().front();
  for (const auto& [rank, where] : evidence.places()) {
    for (const auto& [name, step] : evidence.parameters(rank, first)) {
      if (step.value == nullptr) continue;
      if (tells(*step.value)) start_[name][rank] = step.value->hash;
      const auto layout = declared_layout(*step.segment, *step.value);
      if (layout) cut_.merge(cut_axes(*layout, where));
    }
  }
  for (const auto& [axis, pairs] : neighbours_of(evidence.places())) {
    std::size_t equal = 0;
    std::size_t different = 0;
    for (const auto& [name, by_rank] : start_) {
      for (const auto& [one, other] : pairs) {
        const auto left = by_rank.find(one);
        const auto right = by_rank.find(other);
        if (left == by_rank.end() || right == by_rank.end()) continue;
        ++(left->second == right->second ? equal : different);
      }
    }
    if (equal > 0 && different == 0) equal_.insert(axis);
  }
  learn_from_peers();
}

std::string CopyFinder::peers_of(std::int32_t rank, const std::string& parameter,
                                 const Shape& shape) const {
  const auto& modules = evidence_.rank(rank)->modules;
  const auto module = modules.find(owner_of(parameter));
  std::string kind = module == modules.end() ? "" : module->second.class_name;
  kind += parameter.substr(parameter.rfind('.') + 1);
  for (const std::uint64_t extent : shape) kind += "," + std::to_string(extent);
  return kind;
}

void CopyFinder::learn_from_peers() {
  const std::int64_t first = evidence_.iterations().front();
  std::map<std::string, std::map<std::int32_t, const Record*>> stepped;
  for (const auto& [rank, where] : evidence_.places()) {
    for (const auto& [name, step] : evidence_.parameters(rank, first)) {
      const bool blank = step.value != nullptr && !tells(*step.value);
      if (blank && step.after != nullptr && tells(*step.after)) stepped[name][rank] = step.after;
    }
  }
  for (const auto& [name, by_rank] : stepped) {
    for (auto one = by_rank.begin(); one != by_rank.end(); ++one) {
      for (auto other = std::next(one); other != by_rank.end(); ++other) {
        if (one->second->shape != other->second->shape) continue;
        Votes& votes =
            peers_[{peers_of(one->first, name, one->second->shape), {one->first, other->first}}];
        ++(one->second->hash == other->second->hash ? votes.equal : votes.different);
      }
    }
  }
}

bool CopyFinder::peers_are_equal(const Key& key, const Shard& one, const Shard& other) const {
  const auto& steps = evidence_.parameters(one.rank, evidence_.iterations().front());
  const auto step = steps.find(key.module);
  if (step == steps.end() || step->second.value == nullptr || tells(*step->second.value)) {
    return false;
  }
  const RankPair pair = std::minmax(one.rank, other.rank);
  const auto votes = peers_.find({peers_of(one.rank, key.module, step->second.value->shape), pair});
  return votes != peers_.end() && votes->second.equal > votes->second.different;
}

// Along a data parallel axis parameters are whole, unless some are known to be cut over it.
bool CopyFinder::deals_out(const Shard& one, const Shard& other) const {
  const std::vector<std::string> axes = axes_between(one.where, other.where);
  return !axes.empty() && std::all_of(axes.begin(), axes.end(), [this](const std::string& axis) {
    return evidence_.is_data_axis(axis) && cut_.count(axis) == 0;
  });
}

Copies CopyFinder::of(const Key& key, const std::vector<Shard>& shards) const {
  if (!declares(shards)) return undeclared(key, shards, {});
  const ShardGroups group{{key, shards}};
  const LayoutDecision decision = declared_layouts(group, {}).at(key);
  Copies copies;
  if (!decision.known) {
    // A layout that speaks of some axes only: along the others the shards may be copies.
    for (const Shard& shard : shards) {
      const auto layout = declared_layout(*shard.segment, *shard.record);
      if (!layout) continue;
      if (!layout->axes.empty() && !layout->flat) return undeclared(key, shards, layout->axes);
      break;
    }
    copies.unknown = decision.reason;
    return copies;
  }
  const LogicalTensor tensor = place_shards(key, shards, decision);
  for (const Finding& problem : tensor.problems) {
    if (problem.kind == FindingKind::layout_unknown) copies.unknown = problem.message;
  }
  if (copies.unknown.empty()) {
    copies.sets = sets_of(tensor);
    copies.addends = addends_of(tensor);
  }
  copies.how = decision.reason;
  return copies;
}

Copies CopyFinder::undeclared(const Key& key, const std::vector<Shard>& shards,
                              const std::vector<std::string>& told_apart) const {
  const auto start = start_.find(key.module);
  Joined joined(shards.size());
  Copies copies;
  bool by_content = false;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (std::size_t j = i + 1; j < shards.size(); ++j) {
      const Shard& one = shards[i];
      const Shard& other = shards[j];
      const auto axes = axes_between(one.where, other.where);
      const bool parts = std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
        return std::count(told_apart.begin(), told_apart.end(), axis) != 0;
      });
      if (parts || one.record->shape != other.record->shape) continue;
      if (evidence_.stages().apart(one.rank, other.rank)) continue;
      if (deals_out(one, other)) {
        joined.join(i, j);
        copies.how = axes.front() + " is a data parallel axis";
        continue;
      }
      const bool same_axes =
          !axes.empty() && std::all_of(axes.begin(), axes.end(),
                                       [&](const std::string& axis) { return replicates(axis); });
      bool equal = same_axes;
      if (start != start_.end()) {
        const auto left = start->second.find(one.rank);
        const auto right = start->second.find(other.rank);
        const bool both = left != start->second.end() && right != start->second.end();
        if (both) equal = left->second == right->second;
      } else if (!equal) {
        equal = peers_are_equal(key, one, other);
      }
      if (!equal) continue;
      joined.join(i, j);
      by_content = true;
    }
  }
  if (by_content) {
    copies.certainty = Certainty::likely;
    copies.how = start != start_.end() ? "the ranks' parameters were bit-equal at the start"
                                       : "most parameters of its kind are equal on these ranks";
  }
  std::map<std::size_t, CopySet> sets;
  for (std::size_t i = 0; i < shards.size(); ++i) sets[joined.find(i)].push_back(shards[i]);
  for (auto& [root, set] : sets) copies.sets.push_back(std::move(set));
  return copies;
}

GradientSums::GradientSums(const Evidence& evidence, const CopyFinder& finder,
                           std::int64_t iteration) {
  for (const auto& [key, shards] : evidence.parameter_shards(iteration)) {
    if (key.phase != Phase::grad || shards.size() < 2) continue;
    for (const CopySet& part : finder.of(key, shards).addends) {
      for (const Shard& mine : part) {
        CopySet& others = others_[{mine.rank, mine.record}];
        for (const Shard& other : part) {
          if (other.rank != mine.rank) others.push_back(other);
        }
      }
    }
  }
}

const CopySet* GradientSums::others(std::int32_t rank, const Record& gradient) const {
  const auto found = others_.find({rank, &gradient});
  return found == others_.end() ? nullptr : &found->second;
}

}  // namespace ttrace::builtin
