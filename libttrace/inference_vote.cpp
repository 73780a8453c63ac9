// SPDX-License-Identifier: Apache-2.0
// The contest of hypotheses within a class, and what classes learn from each other.
#include "libttrace/inference_vote.hpp"

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kMaxObservations = 16;
constexpr double kSettled = 0.9;  // a unique winner with this fit ends the search
constexpr double kExact = 0.99;   // parameters equal the reference's when both start alike
constexpr double kTrusted = 0.5;  // a winner that others may learn from
constexpr double kUnanimity = 0.9;

struct Entry {
  Hypothesis hypothesis;
  Marks marks;
};

class Contest {
 public:
  explicit Contest(const Ballot& ballot) : ballot_(ballot) {}

  void add(std::vector<Hypothesis> hypotheses) {
    for (Hypothesis& hypothesis : hypotheses) {
      const auto known = [&hypothesis](const Entry& entry) {
        return entry.hypothesis.index_map == hypothesis.index_map &&
               entry.hypothesis.global == hypothesis.global;
      };
      if (std::any_of(entries_.begin(), entries_.end(), known)) continue;
      Marks marks = ballot_.mark(hypothesis);
      entries_.push_back({std::move(hypothesis), std::move(marks)});
    }
  }

  // The hypotheses that the best one does not beat, simplest first.
  [[nodiscard]] std::vector<const Entry*> standing() const {
    if (entries_.empty()) return {};
    const auto less = [](const Entry& left, const Entry& right) {
      return left.marks.agreements < right.marks.agreements;
    };
    const Entry& best = *std::max_element(entries_.begin(), entries_.end(), less);
    std::vector<const Entry*> left;
    for (const Entry& entry : entries_) {
      if (!ballot_.beats(best.marks, entry.marks)) left.push_back(&entry);
    }
    std::sort(left.begin(), left.end(), [](const Entry* one, const Entry* other) {
      return simpler(one->hypothesis, other->hypothesis);
    });
    return left;
  }

  [[nodiscard]] double best_fit() const {
    double best = 0;
    for (const Entry& entry : entries_) best = std::max(best, entry.marks.fit());
    return best;
  }
  [[nodiscard]] bool settled() const {
    const auto left = standing();
    return left.size() == 1 && left.front()->marks.fit() >= kSettled;
  }
  [[nodiscard]] const Entry* find(const Hypothesis& hypothesis) const {
    for (const Entry& entry : entries_) {
      if (entry.hypothesis.index_map == hypothesis.index_map) return &entry;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<double> best_fits() const {
    std::vector<double> best;
    for (const Entry& entry : entries_) {
      best.resize(entry.marks.fits.size(), -1);
      for (std::size_t i = 0; i < best.size(); ++i) {
        best[i] = std::max(best[i], entry.marks.fits[i]);
      }
    }
    return best;
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  const Ballot& ballot_;
  std::vector<Entry> entries_;
};

void record_standing(const Contest& contest, ClassVerdict& verdict) {
  verdict.standing.clear();
  for (const Entry* entry : contest.standing()) verdict.standing.push_back(entry->hypothesis);
}

// The fit of the first hypothesis on all ranks of the observed members.
void record_fit(const ClassOfTensors& tensors, std::vector<Observation> observations,
                ClassVerdict& verdict) {
  if (verdict.standing.empty()) return;
  const Ballot ballot(on_all_ranks(tensors, std::move(observations)), seed_of(tensors.name));
  const Marks marks = ballot.mark(verdict.standing.front());
  verdict.fit = marks.fit();
  verdict.informative = marks.informative;
}

// Returns how many members of the tier fit the shape.
std::size_t try_tier(FamilyTier tier, const ClassOfTensors& tensors, const CutLessons& lessons,
                     Contest& contest, ClassVerdict& verdict) {
  verdict.tried += (verdict.tried.empty() ? "" : ", ") + std::string(name_of(tier));
  std::vector<Hypothesis> members = members_of(tier, tensors.question, lessons);
  const std::size_t count = members.size();
  contest.add(std::move(members));
  return count;
}

// Exact members first; the rest of the family only where the shape leaves nothing else. A parameter
// whose content no exact member explains may also be partly replicated: content can tell there.
void run_tiers(const ClassOfTensors& tensors, const CutLessons& lessons, const Ballot& ballot,
               Contest& contest, ClassVerdict& verdict) {
  std::size_t fitting = try_tier(FamilyTier::plain, tensors, lessons, contest, verdict);
  // Where neighbours are alike a plain cut agrees with a sequence that is cut document by document.
  if (!(contest.settled() && verdict.varied) || !tensors.question.documents.empty()) {
    fitting += try_tier(FamilyTier::strided, tensors, lessons, contest, verdict);
  }
  const bool parameter = tensors.question.may_pad;
  if (parameter && verdict.varied && !ballot.empty() && contest.best_fit() < kExact) {
    if (const auto sections = find_sections(tensors)) {
      const auto exact = fit_to_shape(*sections, tensors.question.global, tensors.question);
      if (exact) contest.add({*exact});
      verdict.tried += ", unequal sections";
    }
    if (fitting > 0 && contest.best_fit() < kSettled) {
      try_tier(FamilyTier::part_replicated, tensors, lessons, contest, verdict);
    }
  }
  for (const FamilyTier tier : {FamilyTier::uneven, FamilyTier::part_replicated,
                                FamilyTier::swapped, FamilyTier::ragged, FamilyTier::padded}) {
    if (fitting == 0) fitting = try_tier(tier, tensors, lessons, contest, verdict);
  }
}

// Whether `declared` is the reference's shape with the last part of one dimension filled up.
bool is_padded(const Shape& declared, const FamilyQuestion& question) {
  if (!question.may_pad || declared.size() != question.global.size()) return false;
  std::size_t padded = 0;
  for (std::size_t dim = 0; dim < declared.size(); ++dim) {
    if (declared[dim] == question.global[dim]) continue;
    const std::uint64_t local = question.sites.front().local.at(dim);
    if (declared[dim] < question.global[dim] || declared[dim] - question.global[dim] >= local) {
      return false;
    }
    ++padded;
  }
  return padded == 1;
}

// The declaration as a hypothesis; notes in the verdict when it names another logical shape.
std::optional<Hypothesis> declared_hypothesis(const ClassOfTensors& tensors,
                                              ClassVerdict& verdict) {
  if (!tensors.declared) return std::nullopt;
  const Shape& reference = tensors.question.global;
  const Shape global = tensors.declared->global_shape.value_or(reference);
  if (global != reference && !is_padded(global, tensors.question)) {
    verdict.other_shape = global;
    return std::nullopt;
  }
  return fit_to_shape(*tensors.declared, global, tensors.question);
}

// A declaration is used unless content beats it.
void apply_declaration(const ClassOfTensors& tensors, const std::optional<Hypothesis>& declared,
                       const Contest& contest, ClassVerdict& verdict) {
  if (!tensors.declared) return;
  const Entry* entry = declared ? contest.find(*declared) : nullptr;
  if (entry != nullptr) verdict.declared_fit = entry->marks.fit();
  for (const Hypothesis& standing : verdict.standing) {
    if (!declared || standing.index_map != declared->index_map) continue;
    verdict.standing = {*declared};
    verdict.reason = "declared (" + tensors.declared->source + ")";
    return;
  }
  verdict.contradicted = true;
}

}  // namespace

std::vector<Observation> observe(const ClassOfTensors& tensors) {
  std::vector<const ClassMember*> usable;
  for (const ClassMember& member : tensors.members) {
    const bool held = std::any_of(member.shards->begin(), member.shards->end(), has_bytes);
    if (held && member.reference != nullptr) usable.push_back(&member);
  }
  std::vector<Observation> observations;
  const std::size_t count = std::min(usable.size(), kMaxObservations);
  for (std::size_t i = 0; i < count; ++i) {
    const ClassMember& member = *usable[i * usable.size() / count];
    observations.push_back({member.reference,
                            representative_shards(*member.shards, tensors.question.mesh),
                            member.documents});
  }
  return observations;
}

std::vector<Observation> on_all_ranks(const ClassOfTensors& tensors,
                                      std::vector<Observation> observations) {
  for (Observation& observation : observations) {
    for (const ClassMember& member : tensors.members) {
      if (member.reference != observation.reference) continue;
      observation.shards.clear();
      for (const Shard& shard : *member.shards) observation.shards.push_back(&shard);
    }
  }
  return observations;
}

ClassVerdict decide(const ClassOfTensors& tensors, const CutLessons& lessons) {
  const std::vector<Observation> observations = observe(tensors);
  const Ballot ballot(observations, seed_of(tensors.name));
  Contest contest(ballot);
  ClassVerdict verdict;
  verdict.varied = ballot.varied();
  const std::optional<Hypothesis> declared = declared_hypothesis(tensors, verdict);
  if (verdict.other_shape) return verdict;
  if (declared) contest.add({*declared});
  run_tiers(tensors, lessons, ballot, contest, verdict);
  verdict.considered = contest.size();
  verdict.best_fits = contest.best_fits();
  record_standing(contest, verdict);
  apply_declaration(tensors, declared, contest, verdict);
  if (verdict.reason.empty()) {
    verdict.reason = verdict.considered == 1 ? "only layout of that shape" : "content";
  }
  record_fit(tensors, observations, verdict);
  return verdict;
}

void narrow(ClassVerdict& verdict, const std::vector<Observation>& evidence, std::uint64_t seed) {
  const Ballot ballot(evidence, seed);
  if (ballot.empty()) return;
  Contest contest(ballot);
  contest.add(verdict.standing);
  record_standing(contest, verdict);
}

void Peers::learn(const ClassVerdict& winner, const Shape& shard) {
  if (!winner.unique() || winner.fit <= kTrusted) return;
  const Hypothesis& layout = winner.standing.front();
  const Shape local = swapped_back(layout.layout, shard);
  for (std::size_t dim = 0; dim < local.size(); ++dim) {
    if (layout.global[dim] == local[dim]) continue;
    Layout shown;
    shown.dims = {layout.layout.dims[dim]};
    ++votes_[{layout.global[dim], local[dim]}][to_string(shown)];
  }
}

bool Peers::narrow(ClassVerdict& verdict, const Shape& shard) const {
  const auto like_peers = [&](const Hypothesis& hypothesis) {
    const Shape local = swapped_back(hypothesis.layout, shard);
    for (std::size_t dim = 0; dim < local.size(); ++dim) {
      const auto votes = votes_.find({hypothesis.global[dim], local[dim]});
      if (hypothesis.global[dim] == local[dim] || votes == votes_.end()) continue;
      Layout shown;
      shown.dims = {hypothesis.layout.dims[dim]};
      std::uint64_t total = 0;
      for (const auto& [cuts, count] : votes->second) total += count;
      const auto own = votes->second.find(to_string(shown));
      const double share = own == votes->second.end()
                               ? 0
                               : static_cast<double>(own->second) / static_cast<double>(total);
      if (share < kUnanimity) return false;
    }
    return true;
  };
  std::vector<Hypothesis> kept;
  std::copy_if(verdict.standing.begin(), verdict.standing.end(), std::back_inserter(kept),
               like_peers);
  if (kept.empty() || kept.size() == verdict.standing.size()) return false;
  verdict.standing = std::move(kept);
  return true;
}

}  // namespace ttrace
