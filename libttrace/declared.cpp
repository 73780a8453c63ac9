// SPDX-License-Identifier: Apache-2.0
// Layouts without a reference: what the program recorded beside its shards, what a rule says
// instead, and what needs no declaration because there is only one shard or all are the same.
#include <algorithm>
#include <map>
#include <variant>

#include "libttrace/beside.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/documents.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

struct Refusal {
  std::string why;
};

template <class Value>
using Result = std::variant<Value, Refusal>;

Shape local_shape_of(const Shard& shard, const Layout* declared) {
  if (declared != nullptr && declared->flat) return declared->flat->shape;
  return shard.record->shape;
}

// The declared layouts of a segment are few and shared by many records: each text is read once.
class Declarations {
 public:
  explicit Declarations(const ShardGroups& groups) : groups_(groups) {}

  // nullptr: nothing declared. Throws Trouble when the text is no layout.
  const Layout* of(const Shard& shard) {
    if (shard.record->layout == kNoLayout || shard.segment == nullptr) return nullptr;
    const std::string& json =
        shard.segment->layouts().at(static_cast<std::size_t>(shard.record->layout));
    const auto found = parsed_.find(json);
    if (found != parsed_.end()) return &found->second;
    return &parsed_.emplace(json, layout_beside(shard)).first->second;
  }

  // Of the micro-batch of this key.
  const Documents* documents_of(const Key& key) {
    if (!documents_) documents_.emplace().add(groups_);
    return documents_->of(key);
  }

 private:
  const ShardGroups& groups_;
  std::optional<DocumentTable> documents_;  // read when a layout asks for them
  std::map<std::string, Layout> parsed_;
};

// What the ranks declare, flat ranges aside, which are each rank's own. A rank that declares
// nothing does not contradict.
Result<std::optional<Layout>> agreed_layout(const std::vector<Shard>& shards,
                                            Declarations& declarations) {
  std::optional<Layout> agreed;
  std::int32_t first = 0;
  for (const Shard& shard : shards) {
    const Layout* declared = declarations.of(shard);
    if (declared == nullptr) continue;
    Layout own = *declared;
    own.flat.reset();
    if (!agreed) {
      agreed = std::move(own);
      first = shard.rank;
    } else if (*agreed != own) {
      return Refusal{"the ranks declare different layouts: \"" + to_string(*agreed) +
                     "\" on rank " + std::to_string(first) + ", \"" + to_string(own) +
                     "\" on rank " + std::to_string(shard.rank) + " (or different shapes)"};
    }
  }
  return agreed;
}

// The logical extent of one dimension, as the sum over the coordinates that cut it. When some are
// missing the others must be equal, and so is, presumably, what is missing.
Result<std::uint64_t> summed_extent(const std::vector<Cut>& cuts, std::size_t dim,
                                    const std::vector<Shard>& shards,
                                    const std::vector<Shape>& locals) {
  std::map<std::vector<std::uint64_t>, std::uint64_t> extents;
  std::uint64_t combinations = 1;
  for (const Cut& cut : cuts) combinations *= position_on(shards[0].where, cut.axis).size;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::vector<std::uint64_t> coords;
    for (const Cut& cut : cuts) coords.push_back(position_on(shards[i].where, cut.axis).coord);
    const auto [found, added] = extents.emplace(std::move(coords), locals[i][dim]);
    if (!added && found->second != locals[i][dim]) {
      return Refusal{"dimension " + std::to_string(dim) + " has " + std::to_string(found->second) +
                     " and " + std::to_string(locals[i][dim]) +
                     " elements on ranks that should hold the same part"};
    }
  }
  std::uint64_t sum = 0;
  for (const auto& [coords, extent] : extents) sum += extent;
  if (extents.size() == combinations) return sum;
  const std::uint64_t one = extents.begin()->second;
  if (sum == one * extents.size()) return one * combinations;
  return Refusal{"ranks are missing and the shards are unequal: declare the shape"};
}

Result<Shape> global_shape_of(const Layout& layout, const std::vector<Shard>& shards,
                              Declarations& declarations) {
  std::vector<Shape> locals;
  for (const Shard& shard : shards) {
    locals.push_back(local_shape_of(shard, declarations.of(shard)));
    if (locals.back().size() == layout.dims.size()) {
      locals.back() = swapped_back(layout, std::move(locals.back()));
      continue;
    }
    return Refusal{"\"" + to_string(layout) + "\" has " + std::to_string(layout.dims.size()) +
                   " dimensions, the shard of rank " + std::to_string(shard.rank) + " has " +
                   std::to_string(locals.back().size())};
  }
  if (layout.global_shape) return *layout.global_shape;
  Shape shape;
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    const auto extent = summed_extent(layout.dims[dim], dim, shards, locals);
    if (const auto* refusal = std::get_if<Refusal>(&extent)) return *refusal;
    shape.push_back(std::get<std::uint64_t>(extent));
  }
  return shape;
}

LayoutDecision refuse(std::string why) {
  LayoutDecision decision;
  decision.known = false;
  decision.reason = std::move(why);
  return decision;
}

LayoutDecision undeclared(const std::vector<Shard>& shards) {
  const Record& first = *shards[0].record;
  for (const Shard& shard : shards) {
    if (shard.record->shape == first.shape && shard.record->hash == first.hash) continue;
    return refuse(
        "no layout is declared and " + std::to_string(shards.size()) +
        " shards differ: declare it in --layout FILE (or merge --like a reference of one rank)");
  }
  LayoutDecision decision;
  decision.layout.dims.resize(first.shape.size());
  decision.global_shape = first.shape;
  decision.reason = shards.size() == 1 ? "one shard" : "all shards are equal";
  // Shards of zeros or ones are equal, too.
  const bool constant = element_count(first.shape) > 1 && first.kind != RecordKind::hash &&
                        first.statistics.min == first.statistics.max;
  decision.assumed = shards.size() > 1 && constant;
  if (decision.assumed) decision.reason += ", but constant: taken for copies";
  return decision;
}

// The layout speaks of some axes only: shards that differ along the others may be copies gone wrong
// or parts, and nothing here can tell.
bool differ_elsewhere(const Layout& layout, const std::vector<Shard>& shards) {
  std::map<std::vector<std::uint64_t>, const Record*> firsts;
  for (const Shard& shard : shards) {
    std::vector<std::uint64_t> coords;
    for (const std::string& axis : layout.axes) {
      coords.push_back(position_on(shard.where, axis).coord);
    }
    const Record* first = firsts.emplace(std::move(coords), shard.record).first->second;
    if (first->shape != shard.record->shape || first->hash != shard.record->hash) return true;
  }
  return false;
}

LayoutDecision decide(const Key& key, const std::vector<Shard>& shards,
                      const std::vector<LayoutRule>& rules, Declarations& declarations) {
  auto declared = agreed_layout(shards, declarations);
  const LayoutRule* found = find_rule(rules, key);
  if (found != nullptr && found->undeclared) return undeclared(shards);
  const Layout* rule = found != nullptr ? &found->layout : nullptr;
  if (rule == nullptr) {
    if (const auto* refusal = std::get_if<Refusal>(&declared)) return refuse(refusal->why);
    if (!std::get<std::optional<Layout>>(declared)) return undeclared(shards);
  }
  const auto* agreed = std::get_if<std::optional<Layout>>(&declared);
  LayoutDecision decision;
  decision.layout = rule != nullptr ? *rule : **agreed;
  const bool has_shape = agreed != nullptr && *agreed && (*agreed)->global_shape;
  if (rule != nullptr && !rule->global_shape && has_shape) {
    if ((*agreed)->dims.size() == rule->dims.size()) {
      decision.layout.global_shape = (*agreed)->global_shape;
    }
  }
  if (!missing_documents(decision.layout, nullptr).empty()) {
    const Documents* documents = declarations.documents_of(key);
    const std::string missing = missing_documents(decision.layout, documents);
    if (!missing.empty()) return refuse(untold_documents(missing));
    decision.layout = with_documents(std::move(decision.layout), documents);
  }
  leave_turns_open(shards, decision.layout);
  if (!decision.layout.axes.empty() && differ_elsewhere(decision.layout, shards)) {
    return refuse("the declared layout \"" + to_string(decision.layout) +
                  "\" does not say how shards differ over the other ranks: declare it in --layout "
                  "FILE (or merge --like a reference of one rank)");
  }
  const auto shape = global_shape_of(decision.layout, shards, declarations);
  if (const auto* refusal = std::get_if<Refusal>(&shape)) return refuse(refusal->why);
  decision.global_shape = std::get<Shape>(shape);
  std::vector<std::pair<Coordinates, Shape>> held;
  for (const Shard& shard : shards) {
    Shape local = local_shape_of(shard, declarations.of(shard));
    held.emplace_back(shard.where, swapped_back(decision.layout, std::move(local)));
  }
  measure_ragged(decision.layout, held);
  const std::string& source = decision.layout.source;
  decision.reason = rule != nullptr || source.empty() ? "declared" : "declared by " + source;
  if (rule != nullptr) decision.reason += " in the layout file";
  return decision;
}

}  // namespace

LayoutDecisions declared_layouts(const ShardGroups& groups, const std::vector<LayoutRule>& rules) {
  Declarations declarations(groups);
  LayoutDecisions decisions;
  for (const auto& [key, shards] : groups) {
    LayoutDecision decision;
    try {
      decision = decide(key, shards, rules, declarations);
    } catch (const Trouble& trouble) {  // a declaration that cannot be read
      decision = refuse(trouble.what());
    }
    decisions.emplace_hint(decisions.end(), key, std::move(decision));
  }
  return decisions;
}

}  // namespace ttrace
