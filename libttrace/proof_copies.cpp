// SPDX-License-Identifier: Apache-2.0
// Copies must be bit-equal, which their hashes tell. Whoever disagrees with the majority is the odd
// one; without a majority both sides are named, because either may be the wrong one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "libttrace/proof.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kCheapBytes = std::uint64_t{4} << 20;

using Opinion = std::vector<const PlacedShard*>;  // copies with one content

std::vector<std::int32_t> ranks_of(const Opinion& opinion) {
  std::vector<std::int32_t> ranks;
  for (const PlacedShard* placed : opinion) ranks.push_back(placed->shard.rank);
  return ranks;
}

bool has_bytes(const Record& record) {
  return record.kind == RecordKind::full && record.bytes <= kCheapBytes;
}

struct Difference {
  double error = 0;  // |x - y| / |x|, Frobenius
  std::uint64_t elements = 0;
  std::uint64_t unequal = 0;
  std::uint64_t first = 0;  // of the unequal
};

// nullopt when that cannot be had cheaply.
std::optional<Difference> difference_of(const Shard& x, const Shard& y) {
  if (!has_bytes(*x.record) || !has_bytes(*y.record)) return std::nullopt;
  if (x.record->dtype != y.record->dtype || x.record->bytes != y.record->bytes) return std::nullopt;
  const std::span<const std::byte> left = x.segment->bytes(*x.record);
  const std::span<const std::byte> right = y.segment->bytes(*y.record);
  const std::size_t size = size_of(x.record->dtype);
  Difference all{0, left.size() / size, 0, 0};
  double error = 0;
  double norm = 0;
  for (std::uint64_t i = 0; i < all.elements; ++i) {
    const double value = decode(x.record->dtype, left.data(), i);
    const double difference = decode(x.record->dtype, right.data(), i) - value;
    error += difference * difference;
    norm += value * value;
    if (std::memcmp(left.data() + i * size, right.data() + i * size, size) == 0) continue;
    if (all.unequal++ == 0) all.first = i;
  }
  x.segment->release(left);
  y.segment->release(right);
  all.error = error == 0 ? 0 : std::sqrt(error / norm);
  return all;
}

struct Conflict {
  std::string text;
  std::vector<std::int32_t> odd;
  std::optional<Difference> difference;
  Shape shape;  // of a copy
};

Conflict describe(std::vector<Opinion> opinions) {
  std::stable_sort(opinions.begin(), opinions.end(), [](const Opinion& left, const Opinion& right) {
    return left.size() > right.size();
  });
  const Opinion& most = opinions[0];
  const bool majority = most.size() > opinions[1].size();
  Conflict conflict;
  conflict.difference = difference_of(most[0]->shard, opinions[1][0]->shard);
  conflict.shape = most[0]->shard.record->shape;
  for (std::size_t i = majority ? 1 : 0; i < opinions.size(); ++i) {
    const std::vector<std::int32_t> ranks = ranks_of(opinions[i]);
    conflict.odd.insert(conflict.odd.end(), ranks.begin(), ranks.end());
  }
  std::sort(conflict.odd.begin(), conflict.odd.end());
  if (majority) {
    conflict.text = ranks_text(conflict.odd) + (conflict.odd.size() == 1 ? " differs" : " differ") +
                    " from " + ranks_text(ranks_of(most));
  } else if (conflict.odd.size() == opinions.size()) {
    const bool two = conflict.odd.size() == 2;
    conflict.text = ranks_text(conflict.odd) +
                    (two ? " differ, either may be wrong" : " all differ, nothing is in majority");
  } else {
    for (const Opinion& opinion : opinions) {
      conflict.text += (conflict.text.empty() ? "" : " against ") + ranks_text(ranks_of(opinion));
    }
    conflict.text += ", evenly split: either may be wrong";
  }
  const std::optional<Difference>& part = conflict.difference;
  if (part && part->unequal < part->elements) {
    conflict.text += " (in " + std::to_string(part->unequal) + " of " +
                     std::to_string(part->elements) + " elements, from number " +
                     std::to_string(part->first) + " on)";
  }
  return conflict;
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::vector<Conflict> conflicts_of(const LogicalTensor& tensor) {
  std::map<PlaceId, std::map<Hash128, Opinion>> places;
  for (const PlacedShard& placed : tensor.shards) {
    places[place_id(placed, tensor.layout)][placed.shard.record->hash].push_back(&placed);
  }
  std::vector<Conflict> conflicts;
  for (auto& [place, by_hash] : places) {
    if (by_hash.size() < 2) continue;
    std::vector<Opinion> opinions;
    for (auto& [hash, opinion] : by_hash) opinions.push_back(std::move(opinion));
    std::sort(opinions.begin(), opinions.end());  // as the shards are listed, not by hash
    conflicts.push_back(describe(std::move(opinions)));
  }
  return conflicts;
}

}  // namespace

std::string element_text(std::uint64_t flat, const Shape& shape) {
  std::string text;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    text = std::to_string(flat % shape[dim]) + (text.empty() ? "" : ", ") + text;
    flat /= shape[dim];
  }
  return "[" + text + "]";
}

void prove_copies(LogicalTensor& tensor) {
  const bool copies = std::any_of(tensor.shards.begin(), tensor.shards.end(),
                                  [](const PlacedShard& placed) { return placed.copy; });
  if (!copies) return;
  const std::vector<Conflict> conflicts = conflicts_of(tensor);
  if (conflicts.empty()) return;

  constexpr std::size_t kShown = 3;
  Finding problem;
  problem.kind = FindingKind::replica_conflict;
  problem.key = tensor.key;
  problem.message = "copies that must be bit-equal are not: ";
  const Conflict* worst = nullptr;
  for (std::size_t i = 0; i < conflicts.size(); ++i) {
    const Conflict& conflict = conflicts[i];
    if (i < kShown) problem.message += (i == 0 ? "" : "; ") + conflict.text;
    problem.ranks.insert(problem.ranks.end(), conflict.odd.begin(), conflict.odd.end());
    if (!conflict.difference) continue;
    if (worst == nullptr || !(conflict.difference->error <= worst->difference->error)) {
      worst = &conflict;
    }
  }
  if (conflicts.size() > kShown) {
    problem.message += "; and " + std::to_string(conflicts.size() - kShown) + " more parts";
  }
  std::sort(problem.ranks.begin(), problem.ranks.end());
  if (worst != nullptr) {
    const Difference& found = *worst->difference;
    problem.evidence.emplace_back("relative error between the copies", scientific(found.error));
    problem.evidence.emplace_back("elements that differ",
                                  std::to_string(found.unequal) + " of " +
                                      std::to_string(found.elements) + ", the first is " +
                                      element_text(found.first, worst->shape));
  }
  tensor.problems.push_back(std::move(problem));
}

}  // namespace ttrace
