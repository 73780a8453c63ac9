// SPDX-License-Identifier: Apache-2.0
// Layouts are decided for a class of tensors at a time, never for one tensor: the same output of
// all layers, micro-batches and iterations. The samples of up to 16 members are pooled, so that one
// buggy layer cannot bend the decision to what the bug did.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/inference_score.hpp"

namespace ttrace {

struct ClassMember {
  const Key* key = nullptr;
  const std::vector<Shard>* shards = nullptr;
  const LogicalTensor* reference = nullptr;
  const Documents* documents = nullptr;  // of its micro-batch, where anything is packed
};

// Tensors with equal names but for the numeric components, equal slots, shapes, mesh axes and
// declarations.
struct ClassOfTensors {
  std::string name;
  FamilyQuestion question;
  std::vector<ClassMember> members;
  std::optional<Layout> declared;  // by the program or by a rule
};

struct ClassVerdict {
  std::vector<Hypothesis> standing;    // not beaten, simplest first; empty: nothing fits the shape
  double fit = 0;                      // of the first of them
  std::vector<double> best_fits;       // of any hypothesis, by observation; negative: says nothing
  std::uint64_t informative = 0;       // samples behind `fit`
  std::uint64_t considered = 0;        // hypotheses that fit the shape
  std::string tried;                   // the tiers of the family, as text
  bool varied = false;                 // the sampled values are no constants
  std::optional<double> declared_fit;  // set when the declaration fits the shape
  bool contradicted = false;           // declared, but content or local shapes say otherwise
  std::optional<Shape> other_shape;    // the declared logical shape, which the reference has not
  bool assumed = false;
  std::string reason;
  [[nodiscard]] bool unique() const { return standing.size() == 1; }
};

// At most 16 of the members that have bytes on both sides, spread over the class.
[[nodiscard]] std::vector<Observation> observe(const ClassOfTensors& tensors);

// These with the shards of every rank.
[[nodiscard]] std::vector<Observation> on_all_ranks(const ClassOfTensors& tensors,
                                                    std::vector<Observation> observations);

[[nodiscard]] ClassVerdict decide(const ClassOfTensors& tensors, const CutLessons& lessons);

// Where no layout explains a class of outputs: one under which the sums of what ranks hold do.
// `verdict` is left as it is when there is none.
void find_sum(const ClassOfTensors& tensors, const CutLessons& lessons, ClassVerdict& verdict);

// Keeps those hypotheses that other content, `evidence`, does not beat.
void narrow(ClassVerdict& verdict, const std::vector<Observation>& evidence, std::uint64_t seed);

// How dimensions of equal extents are cut in other classes: the votes of unique winners.
class Peers {
 public:
  void learn(const ClassVerdict& winner, const Shape& shard);
  // Keeps those hypotheses whose every cut is the peers' (at least 9 of 10 of them); all when none
  // is. Returns whether that changed anything.
  bool narrow(ClassVerdict& verdict, const Shape& shard) const;

 private:
  std::map<CutLessons::Extents, std::map<std::string, std::uint64_t>> votes_;
};

// Unequal sections of one dimension, e.g. fused q, k and v, found by matching whole slices of a
// parameter with the reference's bit for bit. Accepted only when they reproduce every rank.
[[nodiscard]] std::optional<Layout> find_sections(const ClassOfTensors& parameters);

}  // namespace ttrace
