// SPDX-License-Identifier: Apache-2.0
// Which findings are looked into, and in which order causes are tried. See cause.hpp.
#include "diff/cause.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace ttrace {
namespace {

constexpr std::size_t kMostPieces = 1;  // of a part that is looked at by itself

bool can_have_cause(FindingKind kind) {
  return kind == FindingKind::over_limit || kind == FindingKind::not_equal ||
         kind == FindingKind::replica_conflict || kind == FindingKind::partial_incomplete;
}

// The part of the first odd rank, if it is one box.
void narrow(Suspect& suspect) {
  const LogicalTensor& tensor = *suspect.pair->candidate;
  suspect.region = {Shape(tensor.shape.size(), 0), tensor.shape};
  const std::vector<std::int32_t> odd = odd_ranks(*suspect.metrics, suspect.limit);
  if (odd.empty()) return;
  for (const PlacedShard& placed : tensor.shards) {
    if (placed.shard.rank != odd.front() || placed.pieces.size() != kMostPieces) continue;
    suspect.region = placed.pieces.front().global;
    suspect.where = "rank " + std::to_string(odd.front()) + "'s part of ";
  }
}

// What this rank alone holds, if that is all of the tensor.
std::optional<LogicalTensor> copy_on(const LogicalTensor& tensor, std::int32_t rank) {
  LogicalTensor copy{tensor.key, tensor.dtype, tensor.shape, tensor.layout, {}, {}};
  std::uint64_t count = 0;
  for (const PlacedShard& placed : tensor.shards) {
    if (placed.shard.rank != rank) continue;
    copy.shards.push_back(placed);
    copy.shards.back().copy = false;
    copy.dtype = placed.shard.record->dtype;  // a copy of another type is read as what it is
    for (const Piece& piece : placed.pieces) count += volume(piece.global);
  }
  return count == element_count(tensor.shape) ? std::optional<LogicalTensor>(std::move(copy))
                                              : std::nullopt;
}

// Steps that read. `sized`: what the sums show explains the error.
void read_causes(Suspect& suspect, const LogicalTensor& mine, bool sized, Causes& causes) {
  if (!readable_with_sums(*suspect.pair->reference) || !readable_with_sums(mine)) return;
  const DoubleReader reference(*suspect.pair->reference), candidate(mine);
  suspect.reference = &reference;
  suspect.candidate = &candidate;
  std::optional<Cause> other;
  if (!sized) other = find_origin(suspect);
  if (!sized && !other && !suspect.update) other = find_order(suspect);
  const bool explained = sized || other || suspect.update;
  if (other) causes.push_back(std::move(*other));
  for (Cause& cause : find_places(suspect, explained)) causes.push_back(std::move(cause));
}

// Of copies that differ, the first that is beyond the limit where others are not.
Causes causes_of_copy(Suspect& suspect, std::int32_t rank) {
  Causes causes;
  const std::optional<LogicalTensor> copy = copy_on(*suspect.pair->candidate, rank);
  if (!copy) return causes;
  suspect.region = {Shape(copy->shape.size(), 0), copy->shape};
  read_causes(suspect, *copy, false, causes);
  for (Cause& cause : causes) cause.what = "on rank " + std::to_string(rank) + ": " + cause.what;
  return causes;
}

Causes causes_of(Suspect& suspect, const Finding& finding) {
  const Metrics& total = suspect.metrics->total;
  const bool read = suspect.metrics->evidence == Evidence::read && total.nonfinite_mismatch == 0;
  if (!suspect.update) {  // copies of a parameter are so near that their mean is, too
    if (std::optional<Cause> cause = find_missing_reduction(suspect)) return {*cause};
  }
  if (finding.kind == FindingKind::partial_incomplete) return {};
  if (finding.kind == FindingKind::replica_conflict && !finding.ranks.empty()) {
    return causes_of_copy(suspect, finding.ranks.front());
  }
  if (!read) return {};
  Causes causes;
  if (total.unequal == 0) return causes;
  narrow(suspect);
  std::optional<Cause> size = find_zeros(suspect);
  if (!size && !suspect.update) size = find_factor(suspect);
  if (!size && !suspect.update) size = find_factors_of_ranks(suspect);
  if (std::optional<Cause> padding = find_padding(suspect)) causes.push_back(std::move(*padding));
  const bool sized = size.has_value();
  if (size) causes.push_back(std::move(*size));
  if (std::optional<Cause> share = find_share(suspect)) causes.push_back(std::move(*share));
  read_causes(suspect, *suspect.pair->candidate, sized, causes);
  return causes;
}

}  // namespace

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, share > 0.9995 ? "%.0f %%" : "%.1f %%", 100 * share);
  return text;
}

std::string counted(std::uint64_t part, std::uint64_t of) {
  return std::to_string(part) + " of " + std::to_string(of);
}

void add_causes(const JudgeInput& input, const std::vector<Outcome>& outcomes,
                std::vector<OrderedFinding>& findings) {
  std::map<Key, std::size_t> index;
  for (std::size_t i = 0; i < outcomes.size(); ++i) index[input.alignment->pairs[i].key] = i;
  std::set<Key> done;
  for (const bool inherited : {false, true}) {
    for (OrderedFinding& entry : findings) {
      if (entry.inherited != inherited || !can_have_cause(entry.finding.kind)) continue;
      const auto found = index.find(entry.finding.key);
      if (found == index.end() || !done.insert(entry.finding.key).second) continue;
      const std::size_t i = found->second;
      Suspect suspect;
      suspect.all = &input;
      suspect.pair = &input.alignment->pairs[i];
      suspect.metrics = &(*input.measured)[i];
      suspect.scale = scale_for(suspect.pair->key, *input.seeds);
      const Rule rule = input.limits->tensors[i].rule;
      suspect.update = rule == Rule::update || rule == Rule::step;
      suspect.limit = rule == Rule::equal ? 0 : outcomes[i].rounding;
      entry.causes = causes_of(suspect, entry.finding);
      if (done.size() == kExplained) return;
    }
  }
}

}  // namespace ttrace
