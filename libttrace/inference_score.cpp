// SPDX-License-Identifier: Apache-2.0
// Sampling, agreement and the rule by which one hypothesis beats another.
#include "libttrace/inference_score.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace ttrace {
namespace {

constexpr std::uint8_t kSilent = 0;
constexpr std::uint8_t kAgrees = 1;
constexpr std::uint8_t kDiffers = 2;

// Two values agree within 10 %; below 30 % of the typical magnitude an absolute 3 % of it is added,
// or small elements would be all noise.
constexpr double kTolerance = 0.1;
constexpr double kFloor = 0.3;

// H beats H' by at least 4 % of the samples in which they differ, and by 5 standard deviations of
// the difference of two counts.
constexpr double kBeatShare = 0.04;
constexpr double kBeatSigmas = 5;

constexpr std::uint64_t kOutside = std::numeric_limits<std::uint64_t>::max();  // padding
constexpr std::size_t kFewShards = 8;

// A sampled pair: what the rank holds, and what the reference has there.
struct Pair {
  double held = 0;
  double expected = 0;
  std::size_t sample = 0;
};

double typical_magnitude(const std::vector<Pair>& pairs) {
  std::vector<double> magnitudes;
  for (const Pair& pair : pairs) magnitudes.push_back(std::abs(pair.expected));
  return magnitudes.empty() ? 0 : median(magnitudes);
}

bool near(double held, double expected, double typical) {
  const double size = std::max(std::abs(held), std::abs(expected));
  return std::abs(held - expected) <= kTolerance * (size + kFloor * typical);
}

// The median of held / expected over the larger half of the reference's elements.
double common_factor(const std::vector<Pair>& pairs, double typical) {
  std::vector<double> ratios;
  for (const Pair& pair : pairs) {
    if (pair.expected == 0 || std::abs(pair.expected) < typical) continue;
    ratios.push_back(pair.held / pair.expected);
  }
  return ratios.empty() ? 1 : median(ratios);
}

// Row-major positions of a shard to row-major indices of the logical tensor.
class PositionMap {
 public:
  PositionMap(const Hypothesis& hypothesis, const Coordinates& where, const Shape& local,
              const Documents* documents)
      : reference_(hypothesis.reference), layout_(hypothesis.layout), local_(local) {
    for (std::size_t dim = 0; dim < local.size(); ++dim) {
      runs_.push_back(runs_of(hypothesis.global[dim],
                              with_documents(hypothesis.layout.dims[dim], documents), where));
    }
  }
  // In terms of the reference's shape, which padding exceeds: kOutside there.
  std::uint64_t operator()(std::uint64_t position) {
    places_.resize(local_.size());
    for (std::size_t dim = local_.size(); dim-- > 0;) {
      places_[dim] = position % local_[dim];
      position /= local_[dim];
    }
    if (layout_.swapped) places_ = swapped_back(layout_, std::move(places_));
    std::uint64_t index = 0;
    std::uint64_t stride = 1;
    for (std::size_t dim = local_.size(); dim-- > 0;) {
      const std::uint64_t place = place_of(runs_[dim], places_[dim]);
      if (place >= reference_[dim]) return kOutside;
      index += place * stride;
      stride *= reference_[dim];
    }
    return index;
  }

 private:
  static std::uint64_t place_of(const std::vector<Run>& runs, std::uint64_t local) {
    const auto run = std::partition_point(runs.begin(), runs.end(), [local](const Run& candidate) {
      return candidate.local + candidate.count <= local;
    });
    if (run == runs.end()) return kOutside;
    return run->global + (local - run->local);
  }

  const Shape& reference_;
  const Layout& layout_;
  const Shape& local_;
  Shape places_;  // of the position in question
  std::vector<std::vector<Run>> runs_;
};

}  // namespace

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<const Shard*> representative_shards(const std::vector<Shard>& shards,
                                                const RankMesh& mesh) {
  std::vector<const Shard*> chosen;
  for (const Shard& shard : shards) {
    std::size_t moved = 0;
    std::size_t last = 0;
    bool near = true;
    for (const MeshAxis& axis : mesh.axes) {
      const std::uint64_t coord = position_on(shard.where, axis.name).coord;
      moved += coord != 0 ? 1 : 0;
      last += coord + 1 == axis.size ? 1 : 0;
      near = near && (coord <= 1 || coord + 1 == axis.size);
    }
    if ((near && moved <= 1) || last == mesh.axes.size()) chosen.push_back(&shard);
  }
  if (shards.size() > kFewShards && chosen.size() > 1) return chosen;
  chosen.clear();
  for (const Shard& shard : shards) {
    if (chosen.size() < kFewShards) chosen.push_back(&shard);
  }
  return chosen;
}

double Marks::fit() const {
  if (informative == 0) return 0;
  return static_cast<double>(agreements) / static_cast<double>(informative);
}

Ballot::Ballot(const std::vector<Observation>& observations, std::uint64_t seed) {
  for (const Observation& observation : observations) {
    Witness witness;
    witness.reference = std::make_unique<ElementReader>(*observation.reference);
    if (!witness.reference->readable()) continue;
    witness.exact = !is_floating(observation.reference->dtype);
    for (const Shard* shard : observation.shards) {
      if (!has_bytes(*shard) ||
          shard->record->shape.size() != observation.reference->shape.size()) {
        continue;
      }
      Voice voice{slot_for(*shard, observation.documents, seed), {}};
      const auto bytes = shard->segment->bytes(*shard->record);
      for (const std::uint64_t position : slots_[voice.slot].positions) {
        voice.values.push_back(decode(shard->record->dtype, bytes.data(), position));
      }
      shard->segment->release(bytes);
      sample_count_ += voice.values.size();
      witness.exact = witness.exact && !is_floating(shard->record->dtype);
      witness.voices.push_back(std::move(voice));
    }
    witnesses_.push_back(std::move(witness));
  }
}

std::size_t Ballot::slot_for(const Shard& shard, const Documents* documents, std::uint64_t seed) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].where == shard.where.get() && slots_[i].local == shard.record->shape &&
        slots_[i].documents == documents) {
      return i;
    }
  }
  Slot slot{shard.where, shard.record->shape, documents, {}, index_count_};
  slot.positions =
      sample_positions(element_count(slot.local), seed ^ seed_of(bracketed(slot.local)));
  index_count_ += slot.positions.size();
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

std::vector<std::uint64_t> Ballot::index_table(const Hypothesis& hypothesis) const {
  std::vector<std::uint64_t> table;
  table.reserve(index_count_);
  for (const Slot& slot : slots_) {
    PositionMap map(hypothesis, slot.where, slot.local, slot.documents);
    for (const std::uint64_t position : slot.positions) table.push_back(map(position));
  }
  return table;
}

Marks Ballot::mark(const Hypothesis& hypothesis) const {
  Marks marks;
  marks.indices = index_table(hypothesis);
  marks.samples.reserve(sample_count_);
  for (const Witness& witness : witnesses_) mark_witness(witness, marks);
  return marks;
}

void Ballot::mark_witness(const Witness& witness, Marks& marks) const {
  std::vector<Pair> pairs;
  for (const Voice& voice : witness.voices) {
    const std::size_t first = slots_[voice.slot].first;
    for (std::size_t i = 0; i < voice.values.size(); ++i) {
      const std::size_t sample = marks.samples.size();
      marks.samples.push_back(kSilent);
      const std::uint64_t index = marks.indices[first + i];
      if (index == kOutside) continue;
      const auto expected = witness.reference->at(index);
      const double held = voice.values[i];
      if (!expected || (held == 0 && *expected == 0)) continue;
      if (!std::isfinite(held) || !std::isfinite(*expected)) {
        const bool same = std::isnan(held) ? std::isnan(*expected) : held == *expected;
        if (!same) marks.samples[sample] = kDiffers;
        continue;
      }
      pairs.push_back({held, *expected, sample});
    }
  }
  witness.reference->release();
  const double typical = typical_magnitude(pairs);
  const double factor = witness.exact ? 1 : common_factor(pairs, typical);
  for (const Pair& pair : pairs) {
    const double expected = factor * pair.expected;
    const bool agrees = witness.exact ? pair.held == expected
                                      : near(pair.held, expected, std::abs(factor) * typical);
    marks.samples[pair.sample] = agrees ? kAgrees : kDiffers;
  }
  count_witness(witness, marks);
}

void Ballot::count_witness(const Witness& witness, Marks& marks) {
  std::size_t size = 0;
  for (const Voice& voice : witness.voices) size += voice.values.size();
  std::uint64_t agreements = 0;
  std::uint64_t informative = 0;
  for (std::size_t i = marks.samples.size() - size; i < marks.samples.size(); ++i) {
    agreements += marks.samples[i] == kAgrees ? 1 : 0;
    informative += marks.samples[i] != kSilent ? 1 : 0;
  }
  marks.agreements += agreements;
  marks.informative += informative;
  marks.fits.push_back(
      informative == 0 ? -1 : static_cast<double>(agreements) / static_cast<double>(informative));
}

void Ballot::add_sums(const Witness& witness, const std::vector<std::uint64_t>& indices,
                      const std::vector<MeshAxis>& axes,
                      std::vector<std::pair<double, double>>& sums) const {
  struct Sum {
    const Voice* first = nullptr;
    std::vector<double> values;
    std::uint64_t addends = 0;
  };
  std::uint64_t expected = 1;
  for (const MeshAxis& axis : axes) expected *= axis.size;
  std::map<std::pair<std::map<std::string, std::uint64_t>, Shape>, Sum> groups;
  for (const Voice& voice : witness.voices) {
    std::map<std::string, std::uint64_t> where;
    for (const auto& [axis, position] : slots_[voice.slot].where) where[axis] = position.coord;
    for (const MeshAxis& axis : axes) where.erase(axis.name);
    Sum& sum = groups[{std::move(where), slots_[voice.slot].local}];
    if (sum.first == nullptr) sum.first = &voice;
    sum.values.resize(voice.values.size(), 0.0);
    for (std::size_t i = 0; i < voice.values.size(); ++i) sum.values[i] += voice.values[i];
    ++sum.addends;
  }
  for (const auto& [group, sum] : groups) {
    if (sum.addends != expected) continue;
    const std::size_t first = slots_[sum.first->slot].first;
    for (std::size_t i = 0; i < sum.values.size(); ++i) {
      const std::uint64_t index = indices[first + i];
      const auto expected_value = index == kOutside ? std::nullopt : witness.reference->at(index);
      if (!expected_value || !std::isfinite(*expected_value)) continue;
      if (sum.values[i] != 0 || *expected_value != 0) {
        sums.emplace_back(sum.values[i], *expected_value);
      }
    }
  }
  witness.reference->release();
}

std::uint64_t agreements_of(const std::vector<std::pair<double, double>>& pairs) {
  std::vector<double> magnitudes;
  for (const auto& [held, expected] : pairs) magnitudes.push_back(std::abs(expected));
  const double typical = magnitudes.empty() ? 0 : median(magnitudes);
  std::uint64_t agreements = 0;
  for (const auto& [held, expected] : pairs) agreements += near(held, expected, typical) ? 1 : 0;
  return agreements;
}

double Ballot::fit_of_sums(const std::vector<std::uint64_t>& indices,
                           const std::vector<MeshAxis>& axes) const {
  std::uint64_t informative = 0;
  std::uint64_t agreements = 0;
  for (const Witness& witness : witnesses_) {
    std::vector<std::pair<double, double>> sums;
    add_sums(witness, indices, axes, sums);
    informative += sums.size();
    agreements += agreements_of(sums);
  }
  return informative == 0 ? 0 : static_cast<double>(agreements) / static_cast<double>(informative);
}

bool Ballot::beats(const Marks& best, const Marks& other) const {
  std::uint64_t differing = 0;
  std::uint64_t for_best = 0;
  std::uint64_t for_other = 0;
  std::size_t sample = 0;
  for (const Witness& witness : witnesses_) {
    for (const Voice& voice : witness.voices) {
      const std::size_t first = slots_[voice.slot].first;
      for (std::size_t i = 0; i < voice.values.size(); ++i, ++sample) {
        if (best.indices[first + i] == other.indices[first + i]) continue;
        if (best.samples[sample] == kSilent && other.samples[sample] == kSilent) continue;
        ++differing;
        for_best += best.samples[sample] == kAgrees ? 1 : 0;
        for_other += other.samples[sample] == kAgrees ? 1 : 0;
      }
    }
  }
  if (for_best <= for_other) return false;
  const double lead = static_cast<double>(for_best - for_other);
  return lead >= kBeatShare * static_cast<double>(differing) &&
         lead >= kBeatSigmas * std::sqrt(static_cast<double>(for_best + for_other));
}

bool Ballot::varied() const {
  std::vector<double> values;
  for (const Witness& witness : witnesses_) {
    for (const Voice& voice : witness.voices) {
      values.insert(values.end(), voice.values.begin(), voice.values.end());
    }
  }
  values.erase(std::remove_if(values.begin(), values.end(),
                              [](double value) { return !std::isfinite(value); }),
               values.end());
  if (values.empty()) return false;
  const double middle = median(values);
  const auto near_middle = [middle](double value) {
    return std::abs(value - middle) <= kTolerance * std::max(std::abs(value), std::abs(middle));
  };
  const auto alike = std::count_if(values.begin(), values.end(), near_middle);
  return static_cast<double>(alike) < 0.9 * static_cast<double>(values.size());
}

}  // namespace ttrace
