// SPDX-License-Identifier: Apache-2.0
// Inputs that are cut (along the sequence by context parallelism, along the batch by data
// parallelism) are recognised by content too: some layout of the family must give every rank
// exactly the elements that it has.
#include <algorithm>

#include "libttrace/inference_family.hpp"
#include "libttrace/inference_sampling.hpp"
#include "libttrace/microbatch_inputs.hpp"

namespace ttrace {
namespace {

LogicalTensor whole_tensor(const Shard& shard) {
  LogicalTensor tensor;
  tensor.dtype = shard.record->dtype;
  tensor.shape = shard.record->shape;
  tensor.layout.dims.resize(tensor.shape.size());
  Piece piece{Shape(tensor.shape.size(), 0), {Shape(tensor.shape.size(), 0), tensor.shape}};
  tensor.shards.push_back({shard, std::vector<Piece>{std::move(piece)}, false});
  return tensor;
}

// Row-major index of each element of the shard in the logical tensor, in the shard's order.
std::vector<std::uint64_t> logical_indices(const Hypothesis& hypothesis, const Shard& shard,
                                           const Documents* documents) {
  std::vector<std::uint64_t> indices{0};
  for (std::size_t dim = 0; dim < hypothesis.global.size(); ++dim) {
    const std::uint64_t extent = hypothesis.global[dim];
    const auto cuts = with_documents(hypothesis.layout.dims[dim], documents);
    std::vector<std::uint64_t> longer;
    for (const std::uint64_t outer : indices) {
      for (const Run& run : runs_of(extent, cuts, shard.where)) {
        for (std::uint64_t i = 0; i < run.count; ++i) {
          longer.push_back(outer * extent + run.global + i);
        }
      }
    }
    indices = std::move(longer);
  }
  return indices;
}

bool holds(const Shard& shard, const std::vector<std::uint64_t>& indices,
           const ElementReader& reference) {
  const auto bytes = shard.segment->bytes(*shard.record);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto expected = reference.at(indices[i]);
    if (!expected || *expected != decode(shard.record->dtype, bytes.data(), i)) return false;
  }
  return true;
}

}  // namespace

std::optional<CutMatch> match_cut_inputs(const std::map<std::int32_t, Shard>& whole,
                                         const std::map<Turn, Shard>& parts,
                                         const DocumentTable& documents) {
  if (whole.empty() || parts.empty()) return std::nullopt;
  FamilyQuestion question;
  question.global = whole.begin()->second.record->shape;
  std::vector<Coordinates> places;
  std::vector<LogicalTensor> tensors;
  tensors.reserve(whole.size());
  std::vector<std::pair<std::int32_t, ElementReader>> readers;
  const auto documents_of = [&documents](std::int32_t number) {
    return documents.of(root_input("", number));
  };
  for (const auto& [number, shard] : whole) {
    if (!has_bytes(shard) || shard.record->shape != question.global) continue;
    tensors.push_back(whole_tensor(shard));
    question.documents.push_back(documents_of(number));
    readers.emplace_back(number, ElementReader(tensors.back()));
  }
  for (const auto& [turn, shard] : parts) {
    if (!has_bytes(shard)) return std::nullopt;
    places.push_back(shard.where);
    question.sites.push_back({shard.where, shard.record->shape});
  }
  question.mesh = mesh_of(places);
  if (!documents.packed()) question.documents.clear();
  std::optional<CutMatch> best;
  for (const FamilyTier tier :
       {FamilyTier::plain, FamilyTier::strided, FamilyTier::uneven, FamilyTier::ragged}) {
    for (const Hypothesis& hypothesis : members_of(tier, question, {})) {
      CutMatch match{hypothesis.layout, {}};
      for (const auto& [turn, shard] : parts) {
        std::vector<std::uint64_t> indices;
        for (const auto& [number, reader] : readers) {
          if (indices.empty() || documents.packed()) {
            indices = logical_indices(hypothesis, shard, documents_of(number));
          }
          if (holds(shard, indices, reader)) match.numbers[turn].push_back(number);
        }
      }
      if (!best || match.numbers.size() > best->numbers.size()) best = std::move(match);
    }
    if (best && best->numbers.size() == parts.size()) break;
  }
  if (best && best->numbers.empty()) return std::nullopt;
  return best;
}

}  // namespace ttrace
