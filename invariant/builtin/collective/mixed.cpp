// SPDX-License-Identifier: Apache-2.0
// A group that averages gradients averages all of them, and one that sums them sums all: the odd
// one among many is too large or too small by the size of the group. Which gradient a call reduces
// says its module, or else its output, which is what the optimizer is given. Where it is not, or
// only for some, the program may divide by itself. Along axes of parts one gradient may be a sum of
// parts while others are copies to be averaged, so that is shown and no violation.
#include <algorithm>
#include <optional>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::size_t kAlike = 3;  // at least, and three times as many as are not

struct Use {
  const Record* gradient = nullptr;
  std::optional<bool> taken;  // by the optimizer, as the call put it out
};
using Uses = std::map<std::string, Use>;       // by parameter
using Kinds = std::map<std::string, Uses>;     // "averaged", "summed"
using Groups = std::map<const Group*, Kinds>;  // of one rank

std::string kind_of(const Collective& row) {
  const bool mean =
      row.reduction == "avg" || (row.reduction == "premul_sum" && row.factor * row.size == 1);
  return mean ? "averaged" : row.reduction == "sum" ? "summed" : "";
}

// nullopt: that is not recorded.
std::optional<bool> is_taken(const Record* output, const Record& gradient) {
  return output == nullptr ? std::nullopt : std::optional(output->hash == gradient.hash);
}

struct Odd {
  std::set<const Group*> groups;
  const Record* gradient = nullptr;
  std::vector<std::int32_t> ranks;
  std::string kind, others;
  std::size_t count = 0;  // of the others
  bool sure = false;
};

class Mixed final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& /*log*/, std::int64_t iteration,
                     Outcome& outcome) override {
    std::map<std::string, Odd> odd;
    for (const auto& [rank, where] : evidence.places()) {
      for (const auto& [group, kinds] : uses_on(evidence, rank, iteration)) {
        look_at_group(evidence, rank, group, kinds, odd, outcome);
      }
    }
    for (const auto& [parameter, found] : odd) {
      if (told_.insert(parameter).second) outcome.report(describe(evidence, iteration, found));
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.collectives().empty()) return;
    ++outcome.unchecked["too few reductions of single gradients, by their modules or contents"];
  }

 private:
  static Groups uses_on(const Evidence& evidence, std::int32_t rank, std::int64_t iteration) {
    const ParameterSteps& steps = evidence.parameters(rank, iteration);
    std::map<Hash128, std::string> by_content;
    for (const auto& [parameter, step] : steps) {
      if (tells(step.reduced)) by_content.emplace(step.reduced->hash, parameter);
    }
    Groups groups;
    for (const PlacedCall& placed : placed_calls(evidence.collectives(), rank, iteration)) {
      const Collective& row = *placed.call.row;
      const std::string kind = sums(row) && row.size > 1 ? kind_of(row) : "";
      if (kind.empty()) continue;
      const Record* output = placed.call.output();
      const auto same = tells(output) ? by_content.find(output->hash) : by_content.end();
      const std::string& parameter = same == by_content.end() ? row.module : same->second;
      const auto step = steps.find(parameter);
      if (step == steps.end() || step->second.reduced == nullptr) continue;
      Use& use = groups[evidence.collectives().group_of(placed.call)][kind][parameter];
      use = {step->second.reduced, is_taken(output, *step->second.reduced)};
    }
    groups.erase(nullptr);
    return groups;
  }

  void look_at_group(const Evidence& evidence, std::int32_t rank, const Group* group,
                     const Kinds& kinds, std::map<std::string, Odd>& odd, Outcome& outcome) {
    const auto most =
        std::max_element(kinds.begin(), kinds.end(), [](const auto& left, const auto& right) {
          return left.second.size() < right.second.size();
        });
    const std::size_t count = most->second.size();
    const auto taken = static_cast<std::size_t>(
        std::count_if(most->second.begin(), most->second.end(),
                      [](const auto& use) { return use.second.taken.value_or(false); }));
    if (count < kAlike) return;
    outcome.compared["reductions of gradients"] += count;
    for (const auto& [kind, uses] : kinds) {
      if (kind == most->first || uses.size() * 3 > count) continue;
      for (const auto& [parameter, use] : uses) {
        if (most->second.count(parameter) != 0) continue;  // both, one after the other
        outcome.compared["reductions of gradients"] += 1;
        // One is taken as it comes and the others are not: what differs is made good.
        if (use.taken && *use.taken != (taken * 2 > count)) continue;
        Odd& found = odd[parameter];
        found.groups.insert(group);
        found.gradient = use.gradient;
        found.ranks.push_back(rank);
        found.kind = kind;
        found.others = most->first;
        found.count = count;
        found.sure = use.taken.value_or(false) && along_data(evidence, axes_of(evidence, group));
      }
    }
  }

  const std::vector<std::string>& axes_of(const Evidence& evidence, const Group* group) {
    const auto [axes, fresh] = along_.try_emplace(group);
    if (fresh) axes->second = fit_of(evidence, *group).axes;
    return axes->second;
  }

  static bool along_data(const Evidence& evidence, const std::vector<std::string>& axes) {
    return !axes.empty() && std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      return evidence.is_data_axis(axis);
    });
  }

  Violation describe(const Evidence& evidence, std::int64_t iteration, const Odd& found) {
    const Group& first = **found.groups.begin();
    const std::vector<std::string>& axes = axes_of(evidence, &first);
    const bool named = found.groups.size() == 1 || axes.empty();
    const std::string along =
        named ? "over " + group_text(evidence, first) : "along " + axes_text(axes);
    Violation violation;
    violation.certainty = found.sure ? Certainty::likely : Certainty::possible;
    violation.iteration = iteration;
    violation.ranks = found.ranks;
    violation.module = found.gradient->key.module;
    violation.key = to_string(found.gradient->key);
    violation.what = "the gradient of " + violation.module + " on " + ranks_text(found.ranks) +
                     " is " + found.kind + " " + along + ", where those of " +
                     counted(found.count, "other parameter") + " are " + found.others;
    violation.advice = "the reduction that this call asks for; one is " +
                       std::to_string(first.size) + " times the other";
    violation.evidence = {{"module", evidence.described(owner_of(violation.module))}};
    return violation;
  }

  std::map<const Group*, std::vector<std::string>> along_;
  std::set<std::string> told_;
};

}  // namespace

std::unique_ptr<Check> make_mixed() { return std::make_unique<Mixed>(); }

}  // namespace ttrace::builtin
