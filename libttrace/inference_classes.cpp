// SPDX-License-Identifier: Apache-2.0
// Class names, declarations and the mesh of each set of ranks.
#include "libttrace/inference_classes.hpp"

#include <algorithm>
#include <set>

#include "libttrace/beside.hpp"

namespace ttrace {
namespace {

// Axes some coordinates of which no rank of the trace has.
std::vector<MeshAxis> incomplete_axes(const std::map<std::int32_t, Coordinates>& ranks) {
  std::map<std::string, std::set<std::uint64_t>> seen;
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& [rank, where] : ranks) {
    for (const auto& [name, position] : where) {
      if (name == kTurnAxis) continue;  // each rank takes all turns
      seen[name].insert(position.coord);
      sizes[name] = std::max(sizes[name], position.size);
    }
  }
  std::vector<MeshAxis> axes;
  for (const auto& [name, size] : sizes) {
    if (seen[name].size() < size) axes.push_back({name, size});
  }
  return axes;
}

std::vector<MeshAxis> axes_not_in(const std::vector<std::string>& axes, const Coordinates& where) {
  std::vector<MeshAxis> others;
  for (const auto& [name, position] : where) {
    const bool known = std::find(axes.begin(), axes.end(), name) != axes.end();
    if (!known && position.size > 1) others.push_back({name, position.size});
  }
  return others;
}

std::string class_name(const Key& key, const Shape& global, const std::vector<Shape>& locals,
                       const RankMesh& mesh, const std::optional<Layout>& declared) {
  std::string name = std::string(name_of(key.phase)) + "/" + starred(key.module) + "/" + key.slot +
                     " " + bracketed(global) + " from " + bracketed(locals.front());
  const auto uneven = [&locals](const Shape& local) { return local != locals.front(); };
  if (std::any_of(locals.begin(), locals.end(), uneven)) {
    for (const Shape& local : locals) name += bracketed(local);
  }
  for (const MeshAxis& axis : mesh.axes) {
    name += " " + axis.name + "=" + std::to_string(axis.size);
  }
  if (declared) name += " as " + to_string(*declared);
  return name;
}

}  // namespace

bool is_number(std::string_view text) {
  const auto digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), digit);
}

std::string starred(std::string_view module) {
  std::string stars;
  while (true) {
    const std::size_t end = module.find('.');
    const std::string_view component = module.substr(0, end);
    stars += is_number(component) ? "*" : component;
    if (end == std::string_view::npos) return stars;
    stars += ".";
    module.remove_prefix(end + 1);
  }
}

void complete(Declaration& declaration, const Shape& reference, const Coordinates& where) {
  if (!declaration.layout || declaration.layout->axes.empty()) return;
  Layout& layout = *declaration.layout;
  if (!layout.global_shape || *layout.global_shape == reference) return;
  const Shape& shape = *layout.global_shape;
  const std::vector<MeshAxis> others = axes_not_in(layout.axes, where);

  // Sets of axes whose size is what one dimension lacks.
  std::vector<std::pair<std::size_t, std::size_t>> fits;  // dimension, set
  for (std::size_t dim = 0; shape.size() == reference.size() && dim < shape.size(); ++dim) {
    Shape grown = shape;
    for (std::size_t set = 1; set < std::size_t{1} << std::min<std::size_t>(others.size(), 16);
         ++set) {
      grown[dim] = shape[dim];
      for (std::size_t i = 0; i < others.size(); ++i) {
        if (set >> i & 1) grown[dim] *= others[i].size;
      }
      if (grown == reference) fits.emplace_back(dim, set);
    }
  }
  if (fits.size() != 1) {
    if (layout.partial.empty()) declaration.layout.reset();
    return;
  }
  const auto [dim, set] = fits.front();
  std::vector<Cut> cuts;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (set >> i & 1) cuts.push_back({others[i].name, CutKind::shard, 1, {}});
  }
  layout.dims[dim].insert(layout.dims[dim].begin(), cuts.begin(), cuts.end());
  layout.global_shape = reference;
  layout.axes.clear();
}

const Layout* Declarations::of(const Shard& shard) {
  const std::int32_t row = shard.record->layout;
  if (row == kNoLayout) return nullptr;
  const auto found = parsed_.find({shard.segment, row});
  if (found != parsed_.end()) return &found->second;
  return &parsed_.emplace(std::pair(shard.segment, row), layout_beside(shard)).first->second;
}

Shape Declarations::local_shape(const Shard& shard) {
  const Layout* layout = of(shard);
  return layout != nullptr && layout->flat ? layout->flat->shape : shard.record->shape;
}

Declaration Declarations::of(const Key& key, const std::vector<Shard>& shards) {
  Declaration declaration;
  for (const Shard& shard : shards) {
    const Layout* own = of(shard);
    if (own == nullptr) continue;
    declaration.flat = declaration.flat || own->flat.has_value();
    if (!declaration.layout) {
      declaration.layout = *own;
    } else if (declaration.layout->dims != own->dims) {
      declaration.conflict = "rank " + std::to_string(shards.front().rank) + " declares \"" +
                             to_string(*declaration.layout) + "\", rank " +
                             std::to_string(shard.rank) + " \"" + to_string(*own) + "\"";
    }
  }
  if (declaration.layout) leave_turns_open(shards, *declaration.layout);
  const LayoutRule* rule = find_rule(rules_, key);
  if (rule == nullptr || (rule->undeclared && declaration.flat)) return declaration;
  declaration.conflict.clear();
  declaration.layout.reset();
  if (!rule->undeclared) declaration.layout = rule->layout;
  return declaration;
}

ClassTable::ClassTable(Declarations& declarations, const ShardGroups& candidate)
    : declarations_(declarations) {
  std::map<std::int32_t, Coordinates> ranks;
  for (const auto& [key, shards] : candidate) {
    for (const Shard& shard : shards) ranks.emplace(shard.rank, shard.where);
  }
  incomplete_ = incomplete_axes(ranks);
  for (const auto& [rank, where] : ranks) {
    for (const auto& [name, position] : where) parallel_ = parallel_ || position.size > 1;
  }
}

const RankMesh& ClassTable::mesh_for(const std::vector<Shard>& shards) {
  std::vector<std::int32_t> ranks;
  for (const Shard& shard : shards) ranks.push_back(shard.rank);
  const auto found = meshes_.find(ranks);
  if (found != meshes_.end()) return found->second;
  std::vector<Coordinates> places;
  for (const Shard& shard : shards) places.push_back(shard.where);
  return meshes_.emplace(std::move(ranks), mesh_of(places, incomplete_)).first->second;
}

void ClassTable::add(const Key& key, const std::vector<Shard>& shards,
                     const LogicalTensor& reference, const Declaration& declaration,
                     const Documents* documents) {
  std::vector<Shape> locals;
  for (const Shard& shard : shards) locals.push_back(declarations_.local_shape(shard));
  const RankMesh& mesh = mesh_for(shards);
  const std::optional<Layout> declared =
      declaration.conflict.empty() ? declaration.layout : std::nullopt;
  const std::string name = class_name(key, reference.shape, locals, mesh, declared);
  const auto [place, is_new] = by_name_.emplace(name, classes_.size());
  if (is_new) {
    FamilyQuestion question{reference.shape, {}, mesh, key.phase == Phase::param};
    for (std::size_t i = 0; i < shards.size(); ++i) {
      question.sites.push_back({shards[i].where, std::move(locals[i])});
    }
    classes_.push_back({name, std::move(question), {}, declared});
  }
  ClassOfTensors& tensors = classes_[place->second];
  tensors.members.push_back({&key, &shards, &reference, documents});
  std::vector<const Documents*>& known = tensors.question.documents;
  if (documents != nullptr && std::find(known.begin(), known.end(), documents) == known.end()) {
    known.push_back(documents);
  }
}

std::vector<ClassOfTensors> ClassTable::take() {
  by_name_.clear();
  return std::exchange(classes_, {});
}

}  // namespace ttrace
