// SPDX-License-Identifier: Apache-2.0
// What inference has to tell: declarations that content contradicts, tensors without any layout,
// and the difference between a tensor of another shape and one in a local order. One finding stands
// for all layers, micro-batches and experts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "libttrace/inference_vote.hpp"

namespace ttrace {

struct DecidedClass {
  ClassOfTensors tensors;
  ClassVerdict verdict;
};

// "does not give the shards' shapes", and where that is so, that it speaks of an unknown axis.
[[nodiscard]] std::string why_misfit(const Layout& declared, const FamilyQuestion& question);

class InferenceReport {
 public:
  // Remembers how well the outputs of these modules agree, before any of them is examined.
  void note_outputs(const std::vector<DecidedClass>& classes);
  // Reports on a class; returns why it has no layout, "" when it has one. `parallel`: the mesh has
  // more than one rank, or there could be no local order.
  [[nodiscard]] std::string examine(const DecidedClass& decided, bool parallel);
  void conflict(const Key& key, const std::string& declarations);
  void undeclared(const Key& key, const std::string& why);
  [[nodiscard]] std::vector<Finding> take();

 private:
  enum class Agreement : std::uint8_t { silent, agrees, differs, local_order };
  [[nodiscard]] static Agreement agreement_of(const ClassVerdict& verdict);
  [[nodiscard]] bool ancestor_agrees(const ClassOfTensors& tensors) const;
  std::string report(const DecidedClass& decided, FindingKind kind, const std::string& message);
  std::string explain_misfit(const DecidedClass& decided);

  std::map<std::string, std::vector<Agreement>> outputs_;  // by starred module
  struct Told {
    Finding finding;
    std::uint64_t tensors = 0;
  };
  std::map<std::string, Told> told_;  // by kind and starred name
  std::vector<Finding> findings_;
};

}  // namespace ttrace
