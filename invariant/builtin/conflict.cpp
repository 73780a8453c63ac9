// SPDX-License-Identifier: Apache-2.0
// See conflict.hpp.
#include "invariant/builtin/conflict.hpp"

#include <algorithm>

#include "invariant/builtin/values.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

using Opinion = std::vector<const Shard*>;

std::vector<std::int32_t> ranks_of(const Opinion& opinion) {
  std::vector<std::int32_t> ranks;
  for (const Shard* shard : opinion) ranks.push_back(shard->rank);
  return ranks;
}

std::optional<double> error_between(const Shard& one, const Shard& other) {
  const auto left = whole(*one.segment, one.record);
  const auto right = whole(*other.segment, other.record);
  if (!left || !right || left->count != right->count) return std::nullopt;
  return relative_error(*left, *right);
}

}  // namespace

std::optional<Conflict> conflict_in(const CopySet& set) {
  std::map<Hash128, Opinion> by_hash;
  for (const Shard& shard : set) by_hash[shard.record->hash].push_back(&shard);
  if (by_hash.size() < 2) return std::nullopt;
  std::vector<Opinion> opinions;
  for (auto& [hash, opinion] : by_hash) opinions.push_back(std::move(opinion));
  std::sort(opinions.begin(), opinions.end(), [](const Opinion& left, const Opinion& right) {
    if (left.size() != right.size()) return left.size() > right.size();
    return left.front()->rank < right.front()->rank;
  });
  Conflict conflict;
  conflict.error = error_between(*opinions[0].front(), *opinions[1].front());
  const bool majority = opinions[0].size() > opinions[1].size();
  for (std::size_t i = majority ? 1 : 0; i < opinions.size(); ++i) {
    for (const std::int32_t rank : ranks_of(opinions[i])) conflict.odd.push_back(rank);
  }
  std::sort(conflict.odd.begin(), conflict.odd.end());
  if (majority) {
    conflict.who = ranks_text(conflict.odd) + (conflict.odd.size() == 1 ? " differs" : " differ") +
                   " from " + ranks_text(ranks_of(opinions[0]));
    return conflict;
  }
  for (const Opinion& opinion : opinions) {
    conflict.who += (conflict.who.empty() ? "" : " against ") + ranks_text(ranks_of(opinion));
  }
  conflict.who += ", any may be wrong";
  return conflict;
}

}  // namespace ttrace::builtin
