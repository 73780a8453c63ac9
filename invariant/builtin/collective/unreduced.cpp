// SPDX-License-Identifier: Apache-2.0
// Gradients are summed over data parallel ranks, all of them or none: a program that names the
// parameter whose gradient it reduces, and does so for nearly all, has forgotten the others.
#include <algorithm>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::size_t kReduced = 3;  // at least, and three times as many as are not

// Trainable parameters that got a gradient, by name; with a record that shows it.
std::map<std::string, const Record*> gradients_in(const SegmentReader& segment) {
  std::map<std::string, const Record*> gradients;
  for (const Record& record : segment.records()) {
    const Key& key = record.key;
    const bool reduced = key.phase == Phase::grad && key.slot == "reduced" && key.call == 0;
    if (reduced && (record.flags & kFlagNoGradient) == 0) gradients.emplace(key.module, &record);
  }
  return gradients;
}

struct Forgotten {
  const Record* record = nullptr;
  std::vector<std::int32_t> ranks;
  std::size_t reduced = 0;  // other parameters
};

class Unreduced final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& /*log*/, std::int64_t iteration,
                     Outcome& outcome) override {
    std::map<std::string, Forgotten> forgotten;
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment == nullptr || !evidence.cut_short(rank, iteration).empty()) continue;
      look_at_rank(evidence, rank, iteration, *segment, forgotten, outcome);
    }
    for (const auto& [parameter, found] : forgotten) {
      if (told_.insert(parameter).second) outcome.report(describe(evidence, iteration, found));
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.collectives().empty()) return;
    ++outcome.unchecked[axes_.empty()
                            ? "no calls along a data parallel axis name parameters as their modules"
                            : "too few parameters are named by calls along a data parallel axis"];
  }

 private:
  void look_at_rank(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                    const SegmentReader& segment, std::map<std::string, Forgotten>& forgotten,
                    Outcome& outcome) {
    const std::map<std::string, const Record*> gradients = gradients_in(segment);
    std::map<std::string, std::set<std::string>> summed;  // parameter -> along what
    std::set<std::string> reduced;                        // along a data axis
    for (const PlacedCall& placed : placed_calls(evidence.collectives(), rank, iteration)) {
      const Collective& row = *placed.call.row;
      if (row.size < 2 || !sums(row) || gradients.count(row.module) == 0) continue;
      const std::vector<std::string>& axes = axes_of(evidence, placed.call);
      summed[row.module].insert(axes.empty() ? "?" : axes_text(axes));
      for (const std::string& axis : axes) {
        if (!evidence.is_data_axis(axis)) continue;
        reduced.insert(row.module);
        axes_ = axes_text(axes);
      }
    }
    const std::size_t others = gradients.size() - reduced.size();
    if (reduced.size() < kReduced || others * 3 > reduced.size()) return;
    outcome.compared["gradients with their reductions"] += gradients.size();
    for (const auto& [parameter, record] : gradients) {
      // Along an axis of unknown purpose: that of experts, perhaps.
      const auto along = summed.find(parameter);
      const bool elsewhere = along != summed.end() && !only_parts(evidence, along->second);
      if (reduced.count(parameter) != 0 || elsewhere) continue;
      Forgotten& found = forgotten[parameter];
      found.record = record;
      found.ranks.push_back(rank);
      found.reduced = reduced.size();
    }
  }

  static bool only_parts(const Evidence& evidence, const std::set<std::string>& axes) {
    return std::all_of(axes.begin(), axes.end(), [&evidence](const std::string& axis) {
      return evidence.is_tensor_axis(axis);
    });
  }

  const std::vector<std::string>& axes_of(const Evidence& evidence, const Call& call) {
    const Group* group = evidence.collectives().group_of(call);
    const auto [axes, fresh] = along_.try_emplace(group);
    if (fresh && group != nullptr) axes->second = fit_of(evidence, *group).axes;
    return axes->second;
  }

  [[nodiscard]] Violation describe(const Evidence& evidence, std::int64_t iteration,
                                   const Forgotten& found) const {
    Violation violation;
    violation.certainty = Certainty::likely;
    violation.iteration = iteration;
    violation.ranks = found.ranks;
    violation.module = found.record->key.module;
    violation.key = to_string(found.record->key);
    violation.what = "the gradient of " + violation.module + " on " + ranks_text(found.ranks) +
                     " is not summed along " + axes_ + ", as those of " +
                     counted(found.reduced, "other parameter") + " are";
    violation.advice = "is it in the list of what is reduced, and is there a gradient by then?";
    violation.evidence = {{"module", evidence.described(owner_of(violation.module))}};
    return violation;
  }

  std::map<const Group*, std::vector<std::string>> along_;
  std::set<std::string> told_;
  std::string axes_;  // along which gradients are summed
};

}  // namespace

std::unique_ptr<Check> make_unreduced() { return std::make_unique<Unreduced>(); }

}  // namespace ttrace::builtin
