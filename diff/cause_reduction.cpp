// SPDX-License-Identifier: Apache-2.0
// Ranks hold what was to be added up: their copies differ, and their sum or mean is the reference.
// Copies that differ in a few elements only were reduced, but for these.
#include <algorithm>
#include <cmath>

#include "diff/cause.hpp"
#include "diff/cause_sample.hpp"
#include "diff/parts.hpp"
#include "diff/sums.hpp"
#include "diff/tiles.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = 65536;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 26;  // that are read for it once more
constexpr double kFewElements = 4;  // times the limit: the norm of a few is not that of all
constexpr std::uint64_t kSampled = 512;
constexpr std::size_t kMinSampled = 16;
constexpr std::size_t kMostOthers = 64;

// An axis, and those along which the ranks lie alike: which of them was meant no number tells.
std::string like_axis(const LogicalTensor& tensor, const std::string& axis) {
  std::string names = axis;
  for (const auto& [other, position] : tensor.shards.front().shard.where) {
    const bool alike =
        other != axis &&
        std::all_of(tensor.shards.begin(), tensor.shards.end(), [&](const PlacedShard& placed) {
          const Coordinates& where = placed.shard.where;
          return position_on(where, other) == position_on(where, axis);
        });
    if (alike) names += " or " + other;
  }
  return names;
}

std::string missing_axes(const LogicalTensor& sum) {
  std::string text;
  for (const std::string& axis : sum.layout.partial) {
    text += (text.empty() ? "" : ", ") + like_axis(sum, axis);
  }
  return text;
}

std::uint64_t addends_of(const LogicalTensor& sum) {
  std::uint64_t count = 1;
  for (const std::string& axis : sum.layout.partial) {
    count *= position_on(sum.shards.front().shard.where, axis).size;
  }
  return count;
}

// What the ranks of one place hold against the reference, split by whether they hold the same.
struct Split {
  std::uint64_t elements = 0;
  std::uint64_t nonzero = 0;    // somewhere
  std::uint64_t differing = 0;  // between ranks
  std::uint64_t first = kNoIndex;
  // Squares. Of the elements that are equal the error of one copy, of the others of sum and mean.
  double equal = 0, equal_error = 0;
  double others = 0, sum_error = 0, mean_error = 0;

  void add(std::uint64_t flat, double reference, double scale, const std::vector<double>& held) {
    double sum = 0;
    bool same = true, zero = true;
    for (const double value : held) {
      sum += value;
      same = same && value == held.front();
      zero = zero && value == 0;
    }
    ++elements;
    nonzero += zero ? 0 : 1;
    const auto squared = [&](double value) {
      return (scale * value - reference) * (scale * value - reference);
    };
    if (same) {
      equal += reference * reference;
      equal_error += squared(held.front());
      return;
    }
    ++differing;
    first = std::min(first, flat);
    others += reference * reference;
    sum_error += squared(sum);
    mean_error += squared(sum / static_cast<double>(held.size()));
  }
};

std::uint64_t flat_index(const Shape& shape, const Box& box, std::uint64_t within) {
  std::uint64_t flat = 0, stride = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    flat += (box.start[dim] + within % box.count[dim]) * stride;
    within /= box.count[dim];
    stride *= shape[dim];
  }
  return flat;
}

void split_box(const Box& box, double scale, const DoubleReader& reference,
               const std::vector<DoubleReader>& ranks, const Shape& shape, Split& split) {
  std::vector<double> right, held(ranks.size());
  reference.read(box, right);
  std::vector<std::vector<double>> values(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].read(box, values[i]);
  for (std::uint64_t at = 0; at < right.size(); ++at) {
    for (std::size_t i = 0; i < ranks.size(); ++i) held[i] = values[i][at];
    split.add(flat_index(shape, box, at), right[at], scale, held);
  }
}

// nullopt where that would be too much to read.
std::optional<Split> split_of(const Suspect& suspect, const LogicalTensor& sum) {
  if (!is_floating(sum.dtype) || element_count(sum.shape) > kMostElements) return std::nullopt;
  const DoubleReader reference(*suspect.pair->reference);
  Split split;
  for (const Source& source : sources_of(sum)) {
    std::vector<LogicalTensor> copies;
    for (const PlacedShard* shard : source.shards) {
      copies.push_back({sum.key, shard->shard.record->dtype, sum.shape, sum.layout, {*shard}, {}});
      copies.back().layout.partial.clear();
    }
    const std::vector<DoubleReader> ranks(copies.begin(), copies.end());
    for (const Piece& piece : source.pieces()) {
      for (Box box : tiles_of(piece.global.count, kTile)) {
        for (std::size_t dim = 0; dim < box.start.size(); ++dim) {
          box.start[dim] += piece.global.start[dim];
        }
        split_box(box, suspect.scale, reference, ranks, sum.shape, split);
      }
    }
  }
  return split;
}

// Most elements were reduced. Nothing where these, or the sums of the others, are not right.
std::optional<Cause> few_are_not_reduced(const Suspect& suspect, const LogicalTensor& sum,
                                         const Split& split) {
  const auto within = [&](double error, double squares, double times) {
    return std::sqrt(error) <= times * suspect.limit * std::sqrt(squares);
  };
  if (!within(split.equal_error, split.equal, 1)) return std::nullopt;
  const bool mean = within(split.mean_error, split.others, kFewElements);
  if (!mean && !within(split.sum_error, split.others, kFewElements)) return std::nullopt;
  const std::string how = mean ? "mean" : "sum";
  return Cause{
      "not reduced over " + missing_axes(sum) + " in " + counted(split.differing, split.elements) +
          " elements, from number " + std::to_string(split.first) + " on: there the " + how +
          " of what the ranks hold is the reference, elsewhere they hold it already",
      "relative error " +
          short_number(std::sqrt((mean ? split.mean_error : split.sum_error) / split.others)) +
          " of the " + how + " there, limit " + short_number(suspect.limit),
      false};
}

// A gradient that goes around the modules whose addends are added to it (a residual connection): it
// is in each rank's copy, and so, in their sum, once too often for each rank but one.
std::optional<Cause> added_to_what_goes_around(const Suspect& suspect, const LogicalTensor& sum) {
  const Key& key = suspect.pair->key;
  if (key.phase != Phase::backward) return std::nullopt;
  const DoubleReader all(sum), reference(*suspect.pair->reference);
  const auto more = static_cast<double>(addends_of(sum) - 1);
  const auto positions = positions_in({Shape(sum.shape.size(), 0), sum.shape}, kSampled);
  std::vector<double> around;
  double size = 0;
  for (const Shape& at : positions) {
    around.push_back((suspect.scale * all.at(at) - reference.at(at)) / more);
    size += around.back() * around.back();
  }
  size = std::sqrt(size / static_cast<double>(positions.size()));
  std::size_t tried = 0;
  for (const auto& [other, tensor] : suspect.all->candidate->tensors) {
    const bool alike = other.phase == key.phase && other.microbatch == key.microbatch &&
                       other.module != key.module && tensor.shape == sum.shape;
    if (!alike || !readable_with_sums(tensor) || ++tried > kMostOthers) continue;
    const DoubleReader values(tensor);
    const Lookup there = [&](const Shape& at) { return suspect.scale * values.at(at); };
    if (!agree(positions, around, there, kFewElements * suspect.limit, size)) continue;
    return Cause{"not reduced over " + missing_axes(sum) +
                     ": each rank holds its addend on top of the gradient of `" + other.module +
                     "`, which goes around; that one and all addends are the reference",
                 std::to_string(positions.size()) + " sampled elements agree",
                 positions.size() < kMinSampled};
  }
  return std::nullopt;
}

bool is_few(const Split& split) { return 2 * split.differing < split.nonzero; }

}  // namespace

std::optional<Cause> find_missing_reduction(const Suspect& suspect) {
  const Pair& pair = *suspect.pair;
  if (!has_problem(*pair.candidate, FindingKind::replica_conflict)) return std::nullopt;
  const std::optional<LogicalTensor> sum = as_sum(*pair.candidate);
  if (!sum || !readable_with_sums(*pair.reference) || kept_of(*sum) != RecordKind::full)
    return std::nullopt;
  const std::optional<Split> split = split_of(suspect, *sum);
  if (split && is_few(*split)) return few_are_not_reduced(suspect, *sum, *split);
  const auto count = static_cast<double>(addends_of(*sum));
  for (const bool mean : {false, true}) {
    const double scale = suspect.scale / (mean ? count : 1);
    const PairMetrics metrics =
        measure(*pair.reference, *sum, *suspect.all->backend, {.scale = scale, .sample = 0});
    const Sums& sums = metrics.total.sums;
    if (metrics.evidence != Evidence::read || metrics.total.nonfinite_mismatch > 0) continue;
    const double norm = std::sqrt(sums.reference_squares);
    const double error = std::sqrt(sums.error_squares);
    if (!(norm > 0) || !(error <= suspect.limit * norm)) continue;
    return Cause{"not reduced over " + missing_axes(*sum) + ": the " + (mean ? "mean" : "sum") +
                     " of what the ranks hold is the reference",
                 "relative error " + short_number(error / norm) + " of " +
                     (mean ? "the mean" : "the sum") + " of " +
                     std::to_string(static_cast<std::uint64_t>(count)) + ", limit " +
                     short_number(suspect.limit),
                 false};
  }
  return added_to_what_goes_around(suspect, *sum);
}

}  // namespace ttrace
