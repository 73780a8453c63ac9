// SPDX-License-Identifier: Apache-2.0
// A layout as an explanation of shards: whether it gives every rank the shape that it has, which
// elements it gives them, and how simple it is.
#include <algorithm>

#include "libttrace/core/trouble.hpp"
#include "libttrace/inference_family.hpp"

namespace ttrace {
namespace {

// Adds a number to a digest of 128 bits.
void mix(Hash128& digest, std::uint64_t number) {
  digest.low = (digest.low ^ (number + 1)) * 0x9e3779b97f4a7c15u;
  digest.low ^= digest.low >> 32;
  digest.high = (digest.high ^ number ^ digest.low) * 0xc2b2ae3d27d4eb4fu;
  digest.high ^= digest.high >> 29;
}

std::uint64_t cost_of(const Layout& layout) {
  std::uint64_t cost = 0;
  for (const auto& cuts : layout.dims) {
    for (const Cut& cut : cuts) {
      if (cut.axis.find('/') != std::string::npos) cost += 100000;
      if (!cut.documents.empty()) cost += 500;
      switch (cut.kind) {
        case CutKind::shard:
          cost += 1;
          break;
        case CutKind::zigzag:
          cost += 10 + cut.sections.size();
          break;
        case CutKind::strided:
          cost += 1000 + cut.parts;
          break;
        case CutKind::sections:
          cost += 10000 + cut.sections.size();
          break;
        case CutKind::ragged:
          cost += 1000000;
          break;
      }
    }
  }
  return cost;
}

// False when a rank's shard has another shape than the layout gives it.
bool add_index_map(const Layout& layout, const FamilyQuestion& question, Hypothesis& hypothesis) {
  const Shape& global = hypothesis.global;
  for (const ShardSite& site : question.sites) {
    if (site.local.size() != global.size()) return false;
    const Shape local = swapped_back(layout, site.local);
    for (std::size_t dim = 0; dim < global.size(); ++dim) {
      const std::vector<Run> runs = runs_of(global[dim], layout.dims[dim], site.where);
      if (local_extent(runs) != local[dim]) return false;
      mix(hypothesis.index_map, runs.size());
      for (const Run& run : runs) {
        mix(hypothesis.index_map, run.global);
        mix(hypothesis.index_map, run.count);
      }
    }
  }
  return true;
}

}  // namespace

bool simpler(const Hypothesis& left, const Hypothesis& right) {
  if (left.cost != right.cost) return left.cost < right.cost;
  return to_string(left.layout) < to_string(right.layout);
}

std::optional<Hypothesis> fit_to_shape(const Layout& layout, const Shape& global,
                                       const FamilyQuestion& question) {
  if (layout.dims.size() != global.size()) return std::nullopt;
  Hypothesis hypothesis{layout, global, question.global, {}, cost_of(layout)};
  if (layout.swapped) {
    mix(hypothesis.index_map, layout.swapped->first);
    mix(hypothesis.index_map, layout.swapped->second);
  }
  try {
    std::vector<std::pair<Coordinates, Shape>> shards;
    for (const ShardSite& site : question.sites) {
      shards.emplace_back(site.where, swapped_back(layout, site.local));
    }
    measure_ragged(hypothesis.layout, shards);
    std::vector<const Documents*> microbatches = question.documents;
    if (microbatches.empty()) microbatches.push_back(nullptr);
    for (const Documents* documents : microbatches) {
      if (!add_index_map(with_documents(hypothesis.layout, documents), question, hypothesis)) {
        return std::nullopt;
      }
    }
  } catch (const Trouble&) {
    return std::nullopt;  // a cut that does not divide is simply no explanation
  }
  return hypothesis;
}

std::string bracketed(const Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace ttrace
