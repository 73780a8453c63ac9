// SPDX-License-Identifier: Apache-2.0
// See shape_fit.hpp.
#include "libttrace/shape_fit.hpp"

#include "libttrace/inference_family.hpp"

namespace ttrace {

const ShapeFit& ShapeFits::of(const std::vector<Shard>& shards, const Shape& shape) {
  FamilyQuestion question{shape, {}, {}, false};
  std::vector<Coordinates> places;
  std::string name = bracketed(shape);
  bool whole = true;
  for (const Shard& shard : shards) {
    whole = whole && shard.record->shape == shape;
    question.sites.push_back({shard.where, shard.record->shape});
    places.push_back(shard.where);
    name += " " + std::to_string(shard.rank) + bracketed(shard.record->shape);
  }
  const auto [found, is_new] = known_.emplace(std::move(name), ShapeFit{whole, {}});
  ShapeFit& fit = found->second;
  if (!is_new || whole) return fit;
  question.mesh = mesh_of(places);
  for (const FamilyTier tier : {FamilyTier::plain, FamilyTier::strided, FamilyTier::uneven,
                                FamilyTier::part_replicated, FamilyTier::swapped}) {
    fit.exact = fit.exact || !members_of(tier, question, {}).empty();
  }
  auto ragged = members_of(FamilyTier::ragged, question, {});
  if (!ragged.empty()) fit.ragged = std::move(ragged.front().layout);
  return fit;
}

}  // namespace ttrace
