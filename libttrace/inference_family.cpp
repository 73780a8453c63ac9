// SPDX-License-Identifier: Apache-2.0
// Enumerates the family for one shape. Sizes prune almost everything: a dimension whose logical and
// local extents are 256 and 64 is cut by axes whose sizes multiply to 4, so that most tensors have
// 1 to 12 candidates.
#include "libttrace/inference_family.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace ttrace {
namespace {

constexpr std::uint64_t kMaxStride = 64;   // equal sections of one dimension
constexpr std::uint64_t kMaxJoined = 8;    // equal sequences one after another, each a zigzag
constexpr std::size_t kMaxMembers = 2048;  // of one tier: no real mesh comes near it
constexpr std::size_t kMaxUnevenAxes = 3;  // nested uneven chunks of one dimension

// One way to cut one dimension.
struct DimChoice {
  std::vector<Cut> cuts;
  std::uint64_t axes = 0;    // bits of RankMesh::axes that it uses
  std::uint64_t extent = 0;  // logical, larger than the reference's only when padded
};

using Sequence = std::vector<std::size_t>;  // axes of one dimension, outer to inner

Cut cut_of(const std::string& axis, CutKind kind = CutKind::shard, std::uint64_t parts = 1) {
  Cut cut;
  cut.axis = axis;
  cut.kind = kind;
  cut.parts = parts;
  return cut;
}

class Enumerator {
 public:
  Enumerator(FamilyTier tier, const FamilyQuestion& question, const RankMesh& mesh,
             const CutLessons& lessons)
      : tier_(tier), question_(question), mesh_(mesh), lessons_(lessons) {}

  std::vector<Layout> layouts;
  std::vector<Shape> globals;

  void run() { choose(0, 0); }

 private:
  // Chooses the cuts of dimension `dim`, then of those after it.
  void choose(std::size_t dim, std::uint64_t used) {
    if (layouts.size() == kMaxMembers) return;
    if (dim == question_.global.size()) {
      layouts.push_back(current_);
      globals.push_back(extents_);
      return;
    }
    for (const DimChoice& choice : choices(dim, used)) {
      current_.dims.push_back(choice.cuts);
      extents_.push_back(choice.extent);
      choose(dim + 1, used | choice.axes);
      extents_.pop_back();
      current_.dims.pop_back();
    }
  }

  std::vector<DimChoice> choices(std::size_t dim, std::uint64_t used) const {
    const std::uint64_t extent = question_.global[dim];
    const bool whole = std::all_of(question_.sites.begin(), question_.sites.end(),
                                   [&](const auto& site) { return site.local[dim] == extent; });
    if (whole) return {{{}, 0, extent}};
    std::vector<DimChoice> found;
    if (tier_ == FamilyTier::ragged && !alike(dim)) {
      add_ragged(dim, used, found);
    } else if (tier_ == FamilyTier::uneven) {
      add_uneven(extent, used, found);
    } else {
      const std::uint64_t local = question_.sites.front().local[dim];
      if (local != 0) add_even(extent, local, used, found);
    }
    return found;
  }

  void add_uneven(std::uint64_t extent, std::uint64_t used, std::vector<DimChoice>& found) const {
    for (const Sequence& axes : sequences(used, 0)) {
      found.push_back(plain(axes, extent));
      add_documents(axes, extent, found);
    }
  }

  // The variants whose outermost cut takes each document by itself.
  void add_documents(const Sequence& axes, std::uint64_t extent,
                     std::vector<DimChoice>& found) const {
    if (question_.documents.empty()) return;
    for (const auto& [input, lengths] : *question_.documents.front()) {
      if (std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}) != extent) continue;
      for (const CutKind kind : {CutKind::zigzag, CutKind::sections}) {
        found.push_back(plain(axes, extent));
        found.back().cuts.front().kind = kind;
        found.back().cuts.front().documents = input;
      }
    }
  }

  bool alike(std::size_t dim) const {
    const std::uint64_t local = question_.sites.front().local[dim];
    return std::all_of(question_.sites.begin(), question_.sites.end(),
                       [&](const ShardSite& site) { return site.local[dim] == local; });
  }

  // Pieces of any sizes in the order of coordinates, that add up to the extent: tokens that were
  // routed to the ranks.
  void add_ragged(std::size_t dim, std::uint64_t used, std::vector<DimChoice>& found) const {
    for (std::size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      if (is_free(axis, used)) found.push_back(plain({axis}, question_.global[dim]));
      if (is_free(axis, used)) found.back().cuts.front().kind = CutKind::ragged;
    }
  }

  void add_even(std::uint64_t extent, std::uint64_t local, std::uint64_t used,
                std::vector<DimChoice>& found) const {
    if (extent % local == 0) {
      for (const Sequence& axes : sequences(used, extent / local)) {
        found.push_back(plain(axes, extent));
        for (std::size_t at = 0; at < axes.size(); ++at) add_kinds(axes, at, extent, found);
        if (tier_ == FamilyTier::strided) add_documents(axes, extent, found);
      }
    }
    if (tier_ != FamilyTier::plain) add_lessons(extent, local, used, found);
    const auto lesson = lessons_.padded.find({extent, local});
    if (lesson != lessons_.padded.end() && tier_ != FamilyTier::padded) {
      for (const Sequence& axes : sequences(used, lesson->second / local)) {
        found.push_back(plain(axes, lesson->second));
      }
    }
    if (tier_ == FamilyTier::padded && question_.may_pad) add_padded(extent, local, used, found);
  }

  // The variants whose `at`th cut is a zigzag or a stride, or a zigzag of each of several sequences
  // that stand in one dimension (the hidden states of heads that predict more than one token).
  void add_kinds(const Sequence& axes, std::size_t at, std::uint64_t extent,
                 std::vector<DimChoice>& found) const {
    std::uint64_t inside = extent;  // what the cuts around this one leave to it
    for (std::size_t i = 0; i < at; ++i) inside /= mesh_.axes[axes[i]].size;
    const std::uint64_t size = mesh_.axes[axes[at]].size;
    if (inside % (2 * size) == 0) {
      found.push_back(plain(axes, extent));
      found.back().cuts[at].kind = CutKind::zigzag;
    }
    if (tier_ == FamilyTier::plain || tier_ == FamilyTier::ragged) return;
    for (std::uint64_t parts = 2; parts <= std::min(kMaxStride, inside / size); ++parts) {
      if (inside % parts != 0 || inside / parts % size != 0) continue;
      found.push_back(plain(axes, extent));
      found.back().cuts[at] = cut_of(mesh_.axes[axes[at]].name, CutKind::strided, parts);
    }
    // Where documents are told, none is guessed.
    if (at > 0 || !question_.documents.empty()) return;
    for (std::uint64_t parts = 2; parts <= kMaxJoined; ++parts) {
      if (inside % parts != 0 || inside / parts % (2 * size) != 0) continue;
      found.push_back(plain(axes, extent));
      found.back().cuts[at].kind = CutKind::zigzag;
      found.back().cuts[at].sections.assign(parts, inside / parts);
    }
  }

  void add_lessons(std::uint64_t extent, std::uint64_t local, std::uint64_t used,
                   std::vector<DimChoice>& found) const {
    const auto lesson = lessons_.cuts.find({extent, local});
    if (lesson == lessons_.cuts.end()) return;
    for (const std::vector<Cut>& cuts : lesson->second) {
      std::uint64_t axes = 0;
      bool free = true;
      for (const Cut& cut : cuts) {
        const std::string base = cut.axis.substr(0, cut.axis.find('/'));
        std::size_t axis = 0;
        while (axis < mesh_.axes.size() && mesh_.axes[axis].name != base) ++axis;
        free = free && axis < mesh_.axes.size() && is_free(axis, used | axes);
        if (free) axes |= std::uint64_t{1} << axis;
      }
      if (free) found.push_back({cuts, axes, extent});
    }
  }

  // Padding fills the last part, so it is smaller than one part.
  void add_padded(std::uint64_t extent, std::uint64_t local, std::uint64_t used,
                  std::vector<DimChoice>& found) const {
    for (const Sequence& axes : sequences(used, 0)) {
      std::uint64_t padded = local;
      for (const std::size_t axis : axes) padded *= mesh_.axes[axis].size;
      if (padded > extent && padded - extent < local) found.push_back(plain(axes, padded));
    }
  }

  DimChoice plain(const Sequence& axes, std::uint64_t extent) const {
    DimChoice choice;
    choice.extent = extent;
    for (const std::size_t axis : axes) {
      choice.cuts.push_back(cut_of(mesh_.axes[axis].name));
      choice.axes |= std::uint64_t{1} << axis;
    }
    return choice;
  }

  bool is_free(std::size_t axis, std::uint64_t used) const {
    if (used >> axis & 1) return false;
    for (std::size_t other = 0; other < mesh_.axes.size(); ++other) {
      if ((used >> other & 1) && mesh_.exclusive[axis][other]) return false;
    }
    return true;
  }

  // Ordered lists of free axes whose sizes multiply to `product`; 0: to anything.
  std::vector<Sequence> sequences(std::uint64_t used, std::uint64_t product) const {
    std::vector<Sequence> found;
    Sequence prefix;
    extend(used, product, prefix, found);
    return found;
  }

  void extend(std::uint64_t used, std::uint64_t product, Sequence& prefix,
              std::vector<Sequence>& found) const {
    if (!prefix.empty() && product <= 1) found.push_back(prefix);
    if (product == 1 || (product == 0 && prefix.size() == kMaxUnevenAxes)) return;
    for (std::size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      const std::uint64_t size = mesh_.axes[axis].size;
      if (!is_free(axis, used) || size < 2 || product % size != 0) continue;
      prefix.push_back(axis);
      extend(used | std::uint64_t{1} << axis, product / size, prefix, found);
      prefix.pop_back();
    }
  }

  FamilyTier tier_;
  const FamilyQuestion& question_;
  const RankMesh& mesh_;
  const CutLessons& lessons_;
  Layout current_;
  Shape extents_;
};

// Meshes in which one axis is replaced by a factor of it: by its neighbourhoods only, because a cut
// by the place among neighbours is how heads are mapped wrongly. Without a recorded mesh the ranks
// are one axis "rank" of which nothing is known, so both factors count there.
std::vector<RankMesh> part_replicated_meshes(const RankMesh& mesh) {
  std::vector<RankMesh> found;
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const auto [name, size] = mesh.axes[axis];
    for (std::uint64_t outer = 2; outer < size; ++outer) {
      if (size % outer != 0) continue;
      RankMesh part = mesh;
      part.axes[axis] = {name + "/outer" + std::to_string(outer), outer};
      if (name == "rank") {
        part.axes.push_back({name + "/inner" + std::to_string(size / outer), size / outer});
        for (auto& row : part.exclusive) row.push_back(false);
        part.exclusive.emplace_back(part.axes.size(), false);
      }
      found.push_back(std::move(part));
    }
  }
  return found;
}

bool even_sites(const FamilyQuestion& question) {
  const auto same = [&](const ShardSite& site) {
    return site.local == question.sites.front().local;
  };
  return std::all_of(question.sites.begin(), question.sites.end(), same);
}

}  // namespace

std::string_view name_of(FamilyTier tier) {
  switch (tier) {
    case FamilyTier::plain:
      return "plain and zigzag cuts";
    case FamilyTier::strided:
      return "strided cuts and packed documents";
    case FamilyTier::uneven:
      return "uneven chunks";
    case FamilyTier::part_replicated:
      return "partly replicated axes";
    case FamilyTier::swapped:
      return "two swapped dimensions";
    case FamilyTier::ragged:
      return "ragged pieces";
    case FamilyTier::padded:
      return "padding at the end";
  }
  __builtin_unreachable();
}

namespace {

// The plain layouts of shards two dimensions of which stand in the other order.
std::vector<Hypothesis> swapped_members(const FamilyQuestion& question, const CutLessons& lessons) {
  std::vector<Hypothesis> members;
  if (question.may_pad) return members;
  for (std::size_t one = 0; one < question.global.size(); ++one) {
    for (std::size_t other = one + 1; other < question.global.size(); ++other) {
      FamilyQuestion swapped = question;
      for (ShardSite& site : swapped.sites) std::swap(site.local[one], site.local[other]);
      for (Hypothesis& member : members_of(FamilyTier::plain, swapped, lessons)) {
        member.layout.swapped = {one, other};
        auto fitting = fit_to_shape(member.layout, member.global, question);
        if (fitting) members.push_back(std::move(*fitting));
      }
    }
  }
  return members;
}

}  // namespace

std::vector<Hypothesis> members_of(FamilyTier tier, const FamilyQuestion& question,
                                   const CutLessons& lessons) {
  if (question.sites.empty()) return {};
  for (const ShardSite& site : question.sites) {
    if (site.local.size() != question.global.size()) return {};
  }
  const bool uneven = tier == FamilyTier::uneven || tier == FamilyTier::ragged;
  if (uneven == even_sites(question) && tier != FamilyTier::uneven) return {};
  if (tier == FamilyTier::swapped) return swapped_members(question, lessons);
  std::vector<RankMesh> meshes{question.mesh};
  if (tier == FamilyTier::part_replicated) meshes = part_replicated_meshes(question.mesh);
  std::vector<Hypothesis> members;
  std::set<Hash128> known;
  for (const RankMesh& mesh : meshes) {
    Enumerator enumerator(tier, question, mesh, lessons);
    enumerator.run();
    for (std::size_t i = 0; i < enumerator.layouts.size(); ++i) {
      Layout& layout = enumerator.layouts[i];
      layout.source = "inferred";
      auto member = fit_to_shape(layout, enumerator.globals[i], question);
      if (member) members.push_back(std::move(*member));
    }
  }
  std::sort(members.begin(), members.end(), simpler);
  const auto repeats = [&known](const Hypothesis& member) {
    return !known.insert(member.index_map).second;
  };
  members.erase(std::remove_if(members.begin(), members.end(), repeats), members.end());
  return members;
}

std::vector<Hypothesis> exact_members(const FamilyQuestion& question, const CutLessons& lessons) {
  std::vector<Hypothesis> members = members_of(FamilyTier::plain, question, lessons);
  for (Hypothesis& more : members_of(FamilyTier::strided, question, lessons)) {
    members.push_back(std::move(more));
  }
  return members;
}

void CutLessons::add(const Extents& extents, const std::vector<Cut>& known) {
  std::vector<std::vector<Cut>>& all = cuts[extents];
  if (std::find(all.begin(), all.end(), known) == all.end()) all.push_back(known);
}

}  // namespace ttrace
