// SPDX-License-Identifier: Apache-2.0
// Layers of one kind make the same collectives along the same axes, and a layer makes the same ones
// in each micro-batch. One that lacks what nearly all others have has lost it, or uses another
// group. Only axes along which modules compute parts count: gradients and parameters of data
// parallel ranks move in buckets and ahead of time, in whatever module is at work then. The first
// and the last layers often differ for good reasons (frozen ones), so they are shown and no
// violation. So is the odd one of three layers; of two, nothing can be told.
#include <algorithm>
#include <array>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

constexpr const char* kTooFew =
    "modules of one kind make different calls, and too few layers agree to tell which are right";

// "all_reduce (sum) along tp": what a module calls, each kind once, so that a forward pass that is
// made twice counts like one.
using Kinds = std::set<std::string>;

struct Use {
  std::int32_t rank = -1;
  std::int32_t microbatch = -1;
  std::string module;
  Kinds kinds;  // along axes of parts
  Kinds all{};  // and others
  // What most of its kind have is here, too.
  [[nodiscard]] bool has(const Kinds& wanted) const {
    return std::includes(kinds.begin(), kinds.end(), wanted.begin(), wanted.end());
  }
};

// Along which modules compute parts of the same samples, as far as is told or the name tells.
bool is_part_axis(const Evidence& evidence, const std::string& axis) {
  static constexpr std::array<std::string_view, 8> kPrefixes{"cp",  "context", "sp",     "seq",
                                                             "etp", "ep",      "expert", "tp"};
  return evidence.is_tensor_axis(axis) ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return axis.rfind(prefix, 0) == 0; });
}

struct Majority {
  const Kinds* kinds = nullptr;
  std::size_t count = 0, all = 0;
  [[nodiscard]] bool clear(std::size_t least) const {
    return kinds != nullptr && count >= least && (all - count) * 3 <= count;
  }
};

Majority majority_of(const std::vector<const Use*>& uses) {
  std::map<Kinds, std::size_t> counts;
  for (const Use* use : uses) ++counts[use->kinds];
  Majority majority;
  majority.all = uses.size();
  for (const auto& [kinds, count] : counts) {
    if (count > majority.count) majority = {&kinds, count, uses.size()};
  }
  if (majority.kinds != nullptr) {  // of a use, which stays
    for (const Use* use : uses) {
      if (use->kinds == *majority.kinds) {
        majority.kinds = &use->kinds;
        break;
      }
    }
  }
  return majority;
}

std::string list_of(const Kinds& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
  return text.empty() ? "none" : text;
}

class Skipped final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& /*log*/, std::int64_t iteration,
                     Outcome& outcome) override {
    const std::vector<Use> uses = uses_in(evidence, iteration);
    compare_microbatches(uses, iteration, outcome);
    compare_layers(evidence, uses, iteration, outcome);
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.collectives().empty()) return;
    ++outcome.unchecked["too few layers or micro-batches of one kind to compare"];
  }

 private:
  // What each module that was at work called in each micro-batch.
  std::vector<Use> uses_in(const Evidence& evidence, std::int64_t iteration) {
    std::vector<Use> uses;
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment == nullptr || !evidence.cut_short(rank, iteration).empty()) continue;
      std::map<std::pair<std::int32_t, std::string>, Use> found;
      for (const Record& record : segment->records()) {
        const Phase phase = record.key.phase;
        if (phase != Phase::forward && phase != Phase::backward) continue;
        if (record.key.module != kRootModule) found[{record.key.microbatch, record.key.module}];
      }
      for (const PlacedCall& placed : placed_calls(evidence.collectives(), rank, iteration)) {
        const Collective& row = *placed.call.row;
        const auto use = found.find({row.microbatch, row.module});
        if (use == found.end() || is_send_or_receive(row)) continue;
        const auto [kind, counts] = kind_of(evidence, placed.call);
        use->second.all.insert(kind);
        if (counts) use->second.kinds.insert(kind);
      }
      for (auto& [place, use] : found) {
        uses.push_back({rank, place.first, place.second, std::move(use.kinds), std::move(use.all)});
      }
    }
    return uses;
  }

  // And whether it is one that all of a kind make.
  std::pair<std::string, bool> kind_of(const Evidence& evidence, const Call& call) {
    const Group* group = evidence.collectives().group_of(call);
    auto [name, fresh] = along_.try_emplace(group);
    auto& [axes, counts] = name->second;
    if (fresh && group != nullptr) {
      const MeshFit fit = fit_of(evidence, *group);
      const bool known = (fit.fit == Fit::whole || fit.fit == Fit::part) && !fit.axes.empty();
      axes =
          known ? "along " + axes_text(fit.axes) : "of " + std::to_string(group->size) + " ranks";
      counts = known && std::all_of(fit.axes.begin(), fit.axes.end(), [&](const std::string& axis) {
                 return is_part_axis(evidence, axis);
               });
    }
    const std::string& reduction = call.row->reduction;
    return {call.row->function + (reduction.empty() ? "" : " (" + reduction + ")") + " " + axes,
            counts};
  }

  void compare_microbatches(const std::vector<Use>& uses, std::int64_t iteration,
                            Outcome& outcome) {
    std::map<std::pair<std::int32_t, std::string>, std::vector<const Use*>> by_module;
    for (const Use& use : uses) {
      if (use.microbatch >= 0) by_module[{use.rank, use.module}].push_back(&use);
    }
    for (auto& [place, same] : by_module) {
      const Majority majority = majority_of(same);
      if (!majority.clear(3) || majority.kinds->empty()) continue;
      outcome.compared["modules in each micro-batch"] += same.size();
      const auto [first, last] = std::minmax_element(
          same.begin(), same.end(),
          [](const Use* left, const Use* right) { return left->microbatch < right->microbatch; });
      for (const Use* use : same) {
        if (use->has(*majority.kinds)) continue;
        const bool end = use == *first || use == *last;
        report(*use, majority, "micro-batches of this module", end, iteration, outcome);
      }
    }
  }

  void compare_layers(const Evidence& evidence, const std::vector<Use>& uses,
                      std::int64_t iteration, Outcome& outcome) {
    std::map<std::pair<std::string, std::string>, std::vector<const Use*>> families;
    for (const Use& use : uses) {
      const std::string pattern = pattern_of(use.module);
      if (pattern != use.module) families[{pattern, class_of(evidence, use)}].push_back(&use);
    }
    for (auto& [family, members] : families) compare_family(members, iteration, outcome);
  }

  void compare_family(const std::vector<const Use*>& members, std::int64_t iteration,
                      Outcome& outcome) {
    const Majority majority = majority_of(members);
    std::set<std::vector<std::uint64_t>> agreeing;  // layers, by their numbers
    std::set<std::vector<std::uint64_t>> lacking;
    for (const Use* use : members) {
      (use->has(*majority.kinds) ? agreeing : lacking).insert(numbers_in(use->module));
    }
    const bool clear = majority.clear(3) && agreeing.size() >= 3;
    if (majority.kinds->empty() || !clear) {
      const bool differ = std::any_of(members.begin(), members.end(), [&](const Use* use) {
        return use->kinds != *majority.kinds;
      });
      if (differ && !majority.clear(3)) ++outcome.unchecked[kTooFew];
    }
    // Two layers against one are worth a look.
    const auto whole = static_cast<std::size_t>(
        std::count_if(agreeing.begin(), agreeing.end(),
                      [&](const auto& layer) { return lacking.count(layer) == 0; }));
    const bool hint = whole >= 2 && whole >= 2 * lacking.size();
    if (majority.kinds->empty() || !(clear || hint)) return;
    if (clear) outcome.compared["modules in each layer"] += members.size();
    for (const Use* use : members) {
      if (use->has(*majority.kinds)) continue;
      const std::vector<std::uint64_t> numbers = numbers_in(use->module);
      const bool end = numbers < *agreeing.begin() || *agreeing.rbegin() < numbers;
      report(*use, majority, "such modules of all layers", end || !clear, iteration, outcome);
    }
  }

  static std::string class_of(const Evidence& evidence, const Use& use) {
    const RankInfo* info = evidence.rank(use.rank);
    const auto found = info->modules.find(use.module);
    return found == info->modules.end() ? "" : found->second.class_name;
  }

  // Once for each module.
  void report(const Use& use, const Majority& majority, const std::string& peers, bool doubtful,
              std::int64_t iteration, Outcome& outcome) {
    if (!told_.insert(use.module).second) return;
    Violation violation;
    violation.certainty = doubtful ? Certainty::possible : Certainty::likely;
    violation.iteration = iteration;
    violation.microbatch = use.microbatch;
    violation.ranks = {use.rank};
    violation.module = use.module;
    violation.what =
        use.module + " on " + ranks_text({use.rank}) +
        (use.microbatch < 0 ? "" : " in micro-batch " + std::to_string(use.microbatch)) +
        " calls " + list_of(use.all) + ", where " + std::to_string(majority.count) + " of " +
        std::to_string(majority.all) + " " + peers + " call " + list_of(*majority.kinds);
    violation.advice = "is a collective missing here, or made over another group?";
    outcome.report(std::move(violation));
  }

  std::map<const Group*, std::pair<std::string, bool>> along_;
  std::set<std::string> told_;
};

}  // namespace

std::unique_ptr<Check> make_skipped() { return std::make_unique<Skipped>(); }

}  // namespace ttrace::builtin
